/* A shared receive queue of two queue pairs. */
#ifndef SHARED_H
#define SHARED_H

#include "ends.h"

/* A server with two queue pairs on one completion queue, and a client of each. */
struct server {
	struct end own; /* its queue pair serves nobody */
	struct ibv_srq *ibv_srq;
	struct mlx5_srq *srq;
	struct ibv_qp *qps[2];
	struct end clients[2];
};

static void make_server(struct server *server)
{
	unsigned at;
	open_device();
	make_end(&server->own, IBV_QPT_RC);
	server->ibv_srq = make_srq();
	OK(mlx5_cq_take(server->own.ibv_cq, 0, &server->own.cq));
	OK(mlx5_srq_take(server->ibv_srq, server->own.cq, 0, &server->srq));
	CHECK(mlx5_srq_ibv(server->srq) == server->ibv_srq && mlx5_srq_capacity(server->srq) >= DEPTH);
	for (at = 0; at < 2; at++) {
		struct end *client = &server->clients[at];
		make_end(client, IBV_QPT_RC);
		server->qps[at] = make_qp_with(server->own.ibv_cq, IBV_QPT_RC, server->ibv_srq);
		to_init(server->qps[at]);
		OK(mlx5_srq_attach(server->srq, server->qps[at]));
		to_rts(server->qps[at], client->qp->qp_num);
		to_rts(client->qp, server->qps[at]->qp_num);
		take(client);
	}
}

static void end_server(struct server *server)
{
	unsigned at;
	mlx5_srq_abandon(server->srq);
	for (at = 0; at < 2; at++)
		CHECK(ibv_destroy_qp(server->qps[at]) == 0);
	CHECK(ibv_destroy_srq(server->ibv_srq) == 0);
	for (at = 0; at < 2; at++)
		destroy_end(&server->clients[at]);
	destroy_end(&server->own);
	close_device();
}

static enum mlx5_status post_shared(struct server *server, uint64_t id)
{
	struct ibv_sge into = sge(&server->own, (unsigned)(id % DEPTH) * 64, 64);
	struct mlx5_receive receive;
	memset(&receive, 0, sizeof(receive));
	receive.id = id;
	receive.sg_list = &into;
	receive.num_sge = 1;
	return mlx5_srq_post(server->srq, &receive, 1, NULL);
}

/* A client sends a number, and waits until it is there. */
static void send_number(struct end *client, uint32_t number)
{
	struct ibv_sge from;
	struct mlx5_request made = request(number, MLX5_OP_SEND, MLX5_SIGNALED | MLX5_INLINE);
	from.addr = (uint64_t)(uintptr_t)&number;
	from.length = sizeof(number);
	from.lkey = 0;
	made.sg_list = &from;
	made.num_sge = 1;
	OK(mlx5_sq_post(client->sq, &made, 1, NULL));
	succeeded(client, number, MLX5_OP_SEND);
}

static uint32_t number_at(const struct server *server, uint64_t id)
{
	uint32_t number;
	memcpy(&number, server->own.memory + id % DEPTH * 64, sizeof(number));
	return number;
}

/* Receives are taken in the order of posting, by whichever queue pair gets a message. */
static void traffic_of(struct server *server)
{
	uint64_t id;
	for (id = 0; id < 10 * DEPTH; id++) {
		unsigned from = (unsigned)(id / 3 % 2);
		struct mlx5_completion done;
		OK(post_shared(server, id));
		send_number(&server->clients[from], (uint32_t)id + 7);
		done = next(&server->own);
		CHECK(done.status == 0 && done.id == id && done.operation == MLX5_OP_RECEIVE);
		CHECK(done.qpn == server->qps[from]->qp_num && done.byte_len == 4);
		CHECK(number_at(server, id) == id + 7);
	}
}

static void misuse_of_shared(struct server *server)
{
	struct mlx5_srq *again = NULL;
	uint64_t id = 0;
	uint32_t capacity = mlx5_srq_capacity(server->srq), at;
	IS(MLX5_STATUS_IN_USE, mlx5_srq_take(server->ibv_srq, server->own.cq, 0, &again));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_srq_take(NULL, server->own.cq, 0, &again));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_srq_take(server->ibv_srq, server->own.cq, 0, NULL));
	IS(MLX5_STATUS_IN_USE, mlx5_srq_attach(server->srq, server->qps[0]));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_srq_attach(server->srq, NULL));
	/* One with a receive queue of its own, which is refused and can be taken over afterwards. */
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_srq_attach(server->srq, server->own.qp));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_srq_detach(server->srq, server->own.qp));
	OK(mlx5_rq_take(server->own.qp, server->own.cq, 1, &server->own.rq));
	OK(mlx5_rq_give_back(server->own.rq));
	server->own.rq = NULL;
	IS(MLX5_STATUS_IN_USE, mlx5_cq_give_back(server->own.cq));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_srq_post(NULL, NULL, 0, NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_srq_post(server->srq, NULL, 1, NULL));
	CHECK(mlx5_srq_capacity(NULL) == 0 && mlx5_srq_ibv(NULL) == NULL);
	CHECK(mlx5_srq_reclaimed(NULL, &id, 1) == 0 && mlx5_srq_reclaimed(server->srq, NULL, 1) == 0);
	mlx5_srq_abandon(NULL);
	/* As many as fit. Then all are used up. */
	for (at = 0; at < capacity; at++)
		OK(post_shared(server, at));
	IS(MLX5_STATUS_QUEUE_FULL, post_shared(server, at));
	for (at = 0; at < capacity; at++) {
		send_number(&server->clients[at % 2], at);
		CHECK(next(&server->own).id == at);
	}
}

/* A queue pair is detached with a completion that was not polled. */
static void detach_from(struct server *server)
{
	uint64_t ids[4];
	OK(post_shared(server, 77));
	send_number(&server->clients[1], 1);
	OK(mlx5_srq_detach(server->srq, server->qps[1]));
	CHECK(mlx5_srq_reclaimed(server->srq, ids, 0) == 0);
	CHECK(mlx5_srq_reclaimed(server->srq, ids, 4) == 1 && ids[0] == 77);
	CHECK(mlx5_srq_reclaimed(server->srq, ids, 4) == 0);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_srq_detach(server->srq, server->qps[1]));
	OK(mlx5_srq_attach(server->srq, server->qps[1]));
	OK(post_shared(server, 78));
	send_number(&server->clients[1], 2);
	CHECK(next(&server->own).id == 78);
}

static void srq(void)
{
	static struct server server;
	make_server(&server);
	traffic_of(&server);
	misuse_of_shared(&server);
	detach_from(&server);
	/* Abandoned with a receive. */
	OK(post_shared(&server, 5));
	end_server(&server);
}

#endif
