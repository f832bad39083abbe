// The requests that mlx5.hpp makes, against those that a program of C fills in.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <infiniband/verbs.h>
#include <mlx5.hpp>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);       \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

static mlx5_request of(std::uint32_t operation, const ibv_sge *list, std::uint32_t count)
{
	mlx5_request made = mlx5_request();
	made.id = 5;
	made.operation = operation;
	made.sg_list = list;
	made.num_sge = count;
	return made;
}

static bool is(const mlx5::request &made, const mlx5_request &filled)
{
	return std::memcmp(static_cast<const mlx5_request *>(&made), &filled, sizeof(filled)) == 0;
}

int main()
{
	using mlx5::request;
	const ibv_sge list[2] = { { 1, 8, 3 }, { 2, 4, 3 } };

	mlx5_request filled = of(MLX5_OP_MASKED_COMPARE_SWAP, list, 1);
	filled.remote_addr = 10;
	filled.rkey = 11;
	filled.compare_add = 12;
	filled.compare_mask = 13;
	filled.swap = 14;
	filled.swap_mask = 15;
	CHECK(is(request::masked_compare_swap(5, list, 10, 11, 12, 13, 14, 15), filled));
	filled = of(MLX5_OP_MASKED_FETCH_ADD, list, 1);
	filled.remote_addr = 10;
	filled.rkey = 11;
	filled.compare_add = 12;
	filled.swap_mask = 13;
	CHECK(is(request::masked_fetch_add(5, list, 10, 11, 12, 13), filled));

	filled = of(MLX5_OP_SEND_INVALIDATE, list, 2);
	filled.rkey = 0x107;
	filled.flags = MLX5_SIGNALED | MLX5_SOLICITED;
	CHECK(is(request::send_invalidate(5, list, 2, 0x107).signaled().solicited(), filled));
	filled = of(MLX5_OP_LOCAL_INVALIDATE, nullptr, 0);
	filled.rkey = 0x107;
	CHECK(is(request::local_invalidate(5, 0x107), filled));

	filled = of(MLX5_OP_BIND_WINDOW, list, 1);
	filled.rkey = 0x1ff;
	filled.immediate = 0x100;
	filled.access = IBV_ACCESS_REMOTE_READ;
	CHECK(is(request::bind_type_1(5, 0x1ff, list, IBV_ACCESS_REMOTE_READ), filled));
	filled.immediate = 0x142;
	filled.flags = MLX5_TYPE_2 | MLX5_ZERO_BASED;
	CHECK(is(request::bind_type_2(5, 0x1ff, 0x142, list, IBV_ACCESS_REMOTE_READ).zero_based(), filled));
	filled = of(MLX5_OP_BIND_WINDOW, nullptr, 0);
	filled.rkey = 0x100;
	filled.immediate = 0x101;
	CHECK(is(request::bind_type_1(5, 0x100, nullptr, 0), filled));
	filled = of(MLX5_OP_CONFIGURE_KEY, list, 2);
	filled.rkey = 0x100;
	filled.access = IBV_ACCESS_REMOTE_WRITE;
	CHECK(is(request::configure_key(5, 0x100, list, 2, IBV_ACCESS_REMOTE_WRITE), filled));

	filled.flags = MLX5_INTERLEAVED;
	filled.immediate = 7;
	CHECK(is(request::configure_interleaved(5, 0x100, list, 2, 7, IBV_ACCESS_REMOTE_WRITE), filled));

	filled = of(MLX5_OP_CONFIGURE_KEY, list, 1);
	filled.rkey = 0x100;
	filled.access = IBV_ACCESS_REMOTE_WRITE;
	filled.flags = MLX5_LIST_IN_MEMORY;
	filled.key_length = 1ull << 40;
	CHECK(is(request::configure_listed(5, 0x100, list, 1ull << 40, IBV_ACCESS_REMOTE_WRITE), filled));

	filled = of(MLX5_OP_WAIT_UNTIL, nullptr, 0);
	filled.time = 1ull << 40;
	filled.time_mask = (1ull << 33) - 1;
	CHECK(is(request::wait_until(5, 1ull << 40, (1ull << 33) - 1), filled));
	filled = of(MLX5_OP_LARGE_SEND, list, 2);
	filled.immediate = 1448;
	CHECK(is(request::large_send(5, list, 2, 1448), filled));
	filled = of(MLX5_OP_MULTI_PACKET, list, 2);
	filled.flags = MLX5_CHECKSUMS;
	CHECK(is(request::multi_packet(5, list, 2).with_checksums(), filled));
	return 0;
}
