// Prepared requests by mlx5.hpp: those that are not fired are forgotten at the end of their scope.
#include <cstdio>
#include <cstring>
#include <optional>

#include "direct/verbs.h"

#include <mlx5.hpp>

static void completed(mlx5::cq &cq, std::uint64_t id)
{
	mlx5::completion done;
	std::uint64_t time = 0;
	int count;
	while ((count = cq.poll(&done, &time, 1)) == 0)
		sched_yield();
	CHECK(count == 1 && done.status == IBV_WC_SUCCESS && done.id == id && time != 0);
}

static void order(struct end &a, struct end &b)
{
	struct { std::uint64_t symbol, price, quantity; } made = { 7, 0, 0 }, arrived;
	ibv_sge list = { reinterpret_cast<std::uintptr_t>(&made), sizeof(made), 0 };
	const std::uint64_t price = 101, quantity = 5;
	const auto to = reinterpret_cast<std::uintptr_t>(b.memory);
	mlx5::cq cq(a.ibv_cq);
	mlx5::sq sq(a.qp, cq);
	const auto write = mlx5::request::write(1, &list, 1, to, b.mr->rkey).inlined().signaled();
	{
		mlx5::prepared orders(sq);
		for (int count = 0; count < 4; count++)
			CHECK(orders.prepare(write) == MLX5_STATUS_OK);
		CHECK(orders.count() == 4 && sq.post(write) == MLX5_STATUS_PREPARED);
		orders.warm();
		const std::array<mlx5::change, 2> both = { mlx5::change::to(8, price), mlx5::change::to(16, quantity) };
		CHECK(orders.fire(both) == MLX5_STATUS_OK);
		completed(cq, 1);
		std::memcpy(&arrived, b.memory, sizeof(arrived));
		CHECK(arrived.symbol == 7 && arrived.price == 101 && arrived.quantity == 5);
		CHECK(orders.fire(both[1]) == MLX5_STATUS_OK && orders.fire() == MLX5_STATUS_OK);
		completed(cq, 1);
		completed(cq, 1);
		std::memcpy(&arrived, b.memory, sizeof(arrived));
		CHECK(arrived.price == 0 && arrived.quantity == 0 && orders.count() == 1);
	}
	CHECK(mlx5_sq_prepared(sq.get()) == 0 && sq.post(write) == MLX5_STATUS_OK);
	completed(cq, 1);
	{
		const ibv_sge memory = sge(&a, 64, 8);
		mlx5::prepared later(sq);
		CHECK(later.prepare(mlx5::request::write(2, &memory, 1, to, b.mr->rkey).signaled()) == MLX5_STATUS_OK);
		std::memcpy(a.memory + 64, "in time", 8);
		CHECK(later.fire() == MLX5_STATUS_OK && later.cancel() == MLX5_STATUS_OK);
		completed(cq, 2);
		CHECK(std::memcmp(b.memory, "in time", 8) == 0);
	}
	sq.give_back();
	cq.give_back();
}

// A scope that ends while a batch of another queue is open: its requests never leave.
static void forgotten(struct end &a, struct end &b)
{
	ibv_qp *qp = make_qp(a.ibv_cq, IBV_QPT_RC);
	to_init(qp);
	to_rts(qp, qp->qp_num);
	std::uint64_t value = 1;
	ibv_sge list = { reinterpret_cast<std::uintptr_t>(&value), sizeof(value), 0 };
	const auto to = reinterpret_cast<std::uintptr_t>(b.memory);
	const auto write = mlx5::request::write(3, &list, 1, to, b.mr->rkey).inlined().signaled();
	mlx5::cq cq(a.ibv_cq);
	mlx5::sq sq(a.qp, cq), other(qp, cq);
	std::memset(b.memory, 0, sizeof(value));
	for (int next = 0; next < 2; next++) {
		{
			std::optional<mlx5::prepared> orders(sq);
			CHECK(orders->prepare(write) == MLX5_STATUS_OK);
			mlx5::batch batch(other);
			CHECK(batch.begun() == MLX5_STATUS_OK && orders->count() == 1);
			orders.reset();
			CHECK(mlx5_sq_prepared(sq.get()) == 0 && sq.post(write) == MLX5_STATUS_BATCH_OPEN);
		}
		value = 42;
		if (next == 0) {
			mlx5::prepared orders(sq);
			CHECK(orders.fire() == MLX5_STATUS_NOTHING_PREPARED);
			CHECK(orders.prepare(write) == MLX5_STATUS_OK && orders.fire() == MLX5_STATUS_OK);
		} else {
			CHECK(sq.post(write) == MLX5_STATUS_OK);
		}
		completed(cq, 3);
		CHECK(std::memcmp(b.memory, &value, sizeof(value)) == 0);
		value = 1;
	}
	other.give_back();
	sq.give_back();
	cq.give_back();
	CHECK(ibv_destroy_qp(qp) == 0);
}

int main()
{
	struct end a, b;
	make_pair(&a, &b, IBV_QPT_RC);
	order(a, b);
	forgotten(a, b);
	destroy_objects(&a);
	destroy_objects(&b);
	close_device();
	std::puts("done");
	return 0;
}
