/* Failed requests. */
#ifndef FAILURE_H
#define FAILURE_H

#include "ends.h"
#include "traffic.h"

/* A bad rkey: the completion tells, the requests behind it are flushed, and the queue starts again after RESET. */
static void failure(void)
{
	struct end a, b;
	struct ibv_sge source;
	struct mlx5_request writes[3];
	struct mlx5_completion done;
	struct ibv_qp_attr attr;
	char text[2048], small[8];
	int length;
	uint64_t id;
	make_pair(&a, &b, IBV_QPT_RC);
	take(&a);
	take(&b);
	source = sge(&a, SENT, 100);
	for (id = 0; id < 3; id++) {
		writes[id] = request(id, MLX5_OP_WRITE, id == 0 ? MLX5_SIGNALED : 0);
		writes[id].sg_list = &source;
		writes[id].num_sge = 1;
		aim(&writes[id], &b, WRITTEN);
	}
	writes[1].rkey ^= 0x5500;
	OK(mlx5_sq_post(a.sq, writes, 3, NULL));
	succeeded(&a, 0, MLX5_OP_WRITE);
	IS(MLX5_STATUS_NOT_IDLE, mlx5_sq_give_back(a.sq));
	done = next(&a);
	CHECK(done.id == 1 && done.status == IBV_WC_REM_ACCESS_ERR && done.operation == MLX5_OP_WRITE);
	CHECK(done.qpn == a.qp->qp_num && done.vendor_error != 0);
	length = mlx5_completion_text(&done, text, sizeof(text));
	CHECK(length > 0 && length == (int)strlen(text));
	CHECK(strstr(text, "RDMA WRITE with id 0x1") && strstr(text, "IBV_WC_REM_ACCESS_ERR"));
	CHECK(mlx5_completion_text(&done, small, sizeof(small)) == length && strcmp(small, "RDMA WR") == 0);
	CHECK(mlx5_completion_text(&done, NULL, 0) == length);
	CHECK(mlx5_completion_text(NULL, text, sizeof(text)) == -1);
	puts(text);
	done = next(&a);
	CHECK(done.id == 2 && done.status == IBV_WC_WR_FLUSH_ERR);
	IS(MLX5_STATUS_QUEUE_STOPPED, mlx5_sq_post(a.sq, writes, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "reset"));
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_sq_recover(a.sq));
	/* All were polled: the queues can be given back. They start again at RESET. */
	give_back(&a);
	give_back(&b);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RESET;
	CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == 0);
	CHECK(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE) == 0);
	to_init(a.qp);
	to_init(b.qp);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);
	take(&a);
	take(&b);
	exchange(&a, &b, 3);
	one_sided(&a, &b, 3);
	end_pair(&a, &b);
}

#endif
