/* Two connected ends whose queues are taken over, and what scenarios have in common. Also valid C++17. */
#ifndef ENDS_H
#define ENDS_H

#include "mlx5.h"

#define LAST_ERROR() mlx5_last_error()
#include "verbs.h"

/* The call returns this status. */
#define IS(status, call)                                                                           \
	do {                                                                                       \
		enum mlx5_status found = (call);                                                   \
		if (found != (status)) {                                                           \
			fprintf(stderr, "%s:%d: %s is %d (%s); last error: %s\n", __FILE__,        \
				__LINE__, #call, (int)found, mlx5_status_text((uint32_t)found),    \
				mlx5_last_error());                                                \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define OK(call) IS(MLX5_STATUS_OK, call)

static struct ibv_srq *make_srq(void)
{
	struct ibv_srq_init_attr attr;
	struct ibv_srq *srq;
	memset(&attr, 0, sizeof(attr));
	attr.attr.max_wr = DEPTH;
	attr.attr.max_sge = 2;
	srq = ibv_create_srq(pd, &attr);
	CHECK(srq);
	return srq;
}

static void take(struct end *end)
{
	OK(mlx5_cq_take(end->ibv_cq, 0, &end->cq));
	OK(mlx5_sq_take(end->qp, end->cq, 0, 0, &end->sq));
	OK(mlx5_rq_take(end->qp, end->cq, 0, &end->rq));
	CHECK(mlx5_sq_capacity(end->sq) >= DEPTH && mlx5_rq_capacity(end->rq) >= DEPTH);
	CHECK(mlx5_cq_ibv(end->cq) == end->ibv_cq && mlx5_sq_ibv(end->sq) == end->qp);
	CHECK(mlx5_rq_ibv(end->rq) == end->qp);
}

static void give_back(struct end *end)
{
	OK(mlx5_sq_give_back(end->sq));
	OK(mlx5_rq_give_back(end->rq));
	OK(mlx5_cq_give_back(end->cq));
	end->sq = NULL;
	end->rq = NULL;
	end->cq = NULL;
}

static void destroy_end(struct end *end)
{
	mlx5_sq_abandon(end->sq);
	mlx5_rq_abandon(end->rq);
	mlx5_cq_abandon(end->cq);
	destroy_objects(end);
}

static void end_pair(struct end *a, struct end *b)
{
	destroy_end(a);
	destroy_end(b);
	close_device();
}

static struct mlx5_request request(uint64_t id, enum mlx5_operation operation, uint32_t flags)
{
	struct mlx5_request made;
	memset(&made, 0, sizeof(made));
	made.id = id;
	made.operation = (uint32_t)operation;
	made.flags = flags;
	return made;
}

static void aim(struct mlx5_request *made, const struct end *peer, unsigned offset)
{
	made->remote_addr = (uint64_t)(uintptr_t)peer->memory + offset;
	made->rkey = peer->mr->rkey;
}

static void post_receive(struct end *end, uint64_t id, struct ibv_sge *list, uint32_t count)
{
	struct mlx5_receive receive;
	uint32_t posted = 0;
	memset(&receive, 0, sizeof(receive));
	receive.id = id;
	receive.sg_list = list;
	receive.num_sge = count;
	OK(mlx5_rq_post(end->rq, &receive, 1, &posted));
	CHECK(posted == 1);
}

/* The next completion. */
static struct mlx5_completion next(struct end *end)
{
	struct mlx5_completion done;
	int count;
	while ((count = mlx5_cq_poll(end->cq, &done, 1)) == 0)
		sched_yield();
	CHECK(count == 1);
	return done;
}

static struct mlx5_completion succeeded(struct end *end, uint64_t id, enum mlx5_operation operation)
{
	struct mlx5_completion done = next(end);
	if (done.status || done.id != id || done.operation != (uint32_t)operation) {
		char text[512];
		mlx5_completion_text(&done, text, sizeof(text));
		fprintf(stderr, "id %d, operation %d expected: %s\n", (int)id, (int)operation, text);
		exit(1);
	}
	CHECK(done.qpn == end->qp->qp_num);
	return done;
}

#endif
