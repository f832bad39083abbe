/* What libibverbs leaves behind, and events. */
#ifndef EVENTS_H
#define EVENTS_H

#include "ends.h"

/* What libibverbs left in the completion queue is found at the take-over. */
static void leftovers(void)
{
	struct end a, b;
	struct ibv_send_wr send, *bad;
	struct pollfd ready;
	struct ibv_wc wc;
	struct ibv_cq *from;
	void *its;
	make_pair(&a, &b, IBV_QPT_RC);
	CHECK(ibv_req_notify_cq(a.ibv_cq, 0) == 0);
	memset(&send, 0, sizeof(send));
	send.opcode = IBV_WR_RDMA_WRITE;
	send.send_flags = IBV_SEND_SIGNALED;
	send.wr.rdma.remote_addr = (uint64_t)(uintptr_t)b.memory;
	send.wr.rdma.rkey = b.mr->rkey;
	CHECK(ibv_post_send(a.qp, &send, &bad) == 0);
	ready.fd = a.channel->fd;
	ready.events = POLLIN;
	CHECK(poll(&ready, 1, -1) == 1);
	IS(MLX5_STATUS_NOT_IDLE, mlx5_cq_take(a.ibv_cq, 0, &a.cq));
	CHECK(strstr(mlx5_last_error(), "ibv_get_cq_event"));
	CHECK(ibv_get_cq_event(a.channel, &from, &its) == 0 && from == a.ibv_cq);
	ibv_ack_cq_events(a.ibv_cq, 1);
	IS(MLX5_STATUS_NOT_IDLE, mlx5_cq_take(a.ibv_cq, 0, &a.cq));
	CHECK(strstr(mlx5_last_error(), "ibv_poll_cq"));
	CHECK(ibv_poll_cq(a.ibv_cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	OK(mlx5_cq_take(a.ibv_cq, 0, &a.cq));
	OK(mlx5_cq_give_back(a.cq));
	OK(mlx5_cq_take(a.ibv_cq, MLX5_CQ_UNPOLLED, &a.cq));
	end_pair(&a, &b);
}

/* Solicited ones only: a plain message raises none. */
static void solicited_events(struct end *a, struct end *b)
{
	struct mlx5_request message = request(1, MLX5_OP_SEND, MLX5_SIGNALED);
	OK(mlx5_cq_arm(b->cq, 1));
	post_receive(b, 1, NULL, 0);
	post_receive(b, 2, NULL, 0);
	OK(mlx5_sq_post(a->sq, &message, 1, NULL));
	succeeded(a, 1, MLX5_OP_SEND);
	succeeded(b, 1, MLX5_OP_RECEIVE);
	IS(MLX5_STATUS_TIMED_OUT, mlx5_cq_wait(b->cq, 0));
	message.flags |= MLX5_SOLICITED;
	OK(mlx5_sq_post(a->sq, &message, 1, NULL));
	OK(mlx5_cq_wait(b->cq, -1));
	CHECK(succeeded(b, 2, MLX5_OP_RECEIVE).flags & MLX5_COMPLETION_SOLICITED);
	succeeded(a, 1, MLX5_OP_SEND);
}

/* Whose event it is on a shared channel, only the program knows. */
static void channels(struct end *a)
{
	struct mlx5_cq *cq;
	struct ibv_cq *second = ibv_create_cq(context, 1, NULL, a->channel, 0);
	CHECK(second);
	IS(MLX5_STATUS_CHANNEL_SHARED, mlx5_cq_wait(a->cq, 0));
	CHECK(ibv_destroy_cq(second) == 0);
	second = ibv_create_cq(context, 1, NULL, NULL, 0);
	CHECK(second);
	OK(mlx5_cq_take(second, 0, &cq));
	IS(MLX5_STATUS_NO_CHANNEL, mlx5_cq_arm(cq, 0));
	IS(MLX5_STATUS_NO_CHANNEL, mlx5_cq_wait(cq, 0));
	CHECK(mlx5_cq_fd(cq) == -1);
	OK(mlx5_cq_give_back(cq));
	CHECK(ibv_destroy_cq(second) == 0);
}

/* Events by libibverbs before the take-over, then by this library, in both ways. */
static void events(void)
{
	struct end a, b;
	struct ibv_send_wr send, *bad;
	struct ibv_cq *from;
	struct ibv_wc wc;
	void *its;
	int lap;
	make_pair(&a, &b, IBV_QPT_RC);
	memset(&send, 0, sizeof(send));
	send.opcode = IBV_WR_RDMA_WRITE;
	send.send_flags = IBV_SEND_SIGNALED;
	send.wr.rdma.remote_addr = (uint64_t)(uintptr_t)b.memory;
	send.wr.rdma.rkey = b.mr->rkey;
	for (lap = 0; lap < 3; lap++) {
		CHECK(ibv_req_notify_cq(a.ibv_cq, 0) == 0);
		CHECK(ibv_post_send(a.qp, &send, &bad) == 0);
		CHECK(ibv_get_cq_event(a.channel, &from, &its) == 0);
		ibv_ack_cq_events(from, 1);
		CHECK(ibv_poll_cq(a.ibv_cq, 1, &wc) == 1);
	}
	take(&a);
	take(&b);
	CHECK(mlx5_cq_fd(a.cq) == a.channel->fd);
	IS(MLX5_STATUS_TIMED_OUT, mlx5_cq_wait(a.cq, 0));
	for (lap = 0; lap < 6; lap++) {
		struct mlx5_request nop = request((uint64_t)lap, MLX5_OP_NOP, MLX5_SIGNALED);
		struct mlx5_completion done;
		OK(mlx5_cq_arm(a.cq, 0));
		CHECK(mlx5_cq_poll(a.cq, &done, 1) == 0);
		OK(mlx5_sq_post(a.sq, &nop, 1, NULL));
		if (lap % 2) {
			CHECK(ibv_get_cq_event(a.channel, &from, &its) == 0 && from == a.ibv_cq);
			ibv_ack_cq_events(from, 1);
			OK(mlx5_cq_event_taken(a.cq));
		} else {
			OK(mlx5_cq_wait(a.cq, -1));
		}
		succeeded(&a, (uint64_t)lap, MLX5_OP_NOP);
	}
	solicited_events(&a, &b);
	channels(&a);
	give_back(&a);
	give_back(&b);
	end_pair(&a, &b);
}

#endif
