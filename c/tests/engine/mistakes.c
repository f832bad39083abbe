/* The mistakes that authors of engines made on devices, one for each argument. Each runs to its end on the model, and
 * `mlx5 lint` names it. */
#include "mlx5_ring.h"
#include "mlx5_engine.h"

#include "../direct/verbs.h"

/* WRITEs that a program without a mistake would make. */
enum { WRITES = 8 };

/* An end with a CQ of so many entries. */
static void make_ends(struct end *a, struct end *b, int entries)
{
	open_device();
	make_end(a, IBV_QPT_RC);
	make_end(b, IBV_QPT_RC);
	CHECK(ibv_destroy_qp(a->qp) == 0 && ibv_destroy_cq(a->ibv_cq) == 0);
	a->ibv_cq = ibv_create_cq(context, entries, NULL, NULL, 0);
	CHECK(a->ibv_cq);
	a->qp = make_qp(a->ibv_cq, IBV_QPT_RC);
	to_init(a->qp);
	to_rts(a->qp, b->qp->qp_num);
	to_rts(b->qp, a->qp->qp_num);
}

/* Writes a 1 to a word of the peer. */
static void post(struct mlx5_engine_queue *queue, const struct end *a, const struct end *b, uint32_t lkey, uint32_t word)
{
	a->memory[0] = 1;
	mlx5_engine_put_write(queue, (uintptr_t)a->memory, lkey, 8, (uintptr_t)b->memory + 8 * word, b->mr->rkey,
			      MLX5_SIGNALED);
	mlx5_engine_ring(queue);
}

/* Writes to so many words, and waits for the last without a look at the CQ. */
static void post_blindly(struct mlx5_engine_queue *queue, const struct end *a, const struct end *b, uint32_t count)
{
	uint32_t word;
	for (word = 0; word < count; word++)
		post(queue, a, b, a->mr->lkey, word);
	while (mlx5_load8(b->memory + 8 * (count - 1)) == 0)
		sched_yield();
}

/* Waits for so many completions, or for a failure. */
static void wait_for(struct mlx5_engine_queue *queue, uint32_t count)
{
	uint32_t completed;
	do
		completed = mlx5_engine_completed(queue);
	while (completed != count && completed != MLX5_ENGINE_FAILED);
}

int main(int argc, char **argv)
{
	const char *mistake = argc == 2 ? argv[1] : "";
	struct end a, b;
	struct mlx5dv_qp qp;
	struct mlx5dv_cq cq;
	struct mlx5dv_obj object;
	struct mlx5_engine_handles handles;
	struct mlx5_engine_queue queue;
	uint32_t lkey, write;
	int two_entries = strcmp(mistake, "two-entries") == 0, valid = strcmp(mistake, "no-invalid-opcode") == 0;
	make_ends(&a, &b, two_entries ? 1 : DEPTH);
	memset(&qp, 0, sizeof(qp));
	memset(&cq, 0, sizeof(cq));
	object.qp.in = a.qp;
	object.qp.out = &qp;
	object.cq.in = a.ibv_cq;
	object.cq.out = &cq;
	CHECK(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) == 0);
	mlx5_engine_handles_init(&handles, &qp, &cq, a.qp->qp_num);
	CHECK(mlx5_engine_queue_init(&queue, &handles) == 0);
	lkey = a.mr->lkey;
	if (valid) {
		/* The CQ's memory is as it was allocated. */
		memset(cq.buf, 0, (size_t)cq.cqe_cnt * cq.cqe_size);
	} else if (strcmp(mistake, "receive-word") == 0) {
		queue.record -= 4;
	} else if (strcmp(mistake, "key-in-host-order") == 0) {
		lkey = mlx5_swap32(lkey);
	} else if (strcmp(mistake, "no-consumer-index") == 0) {
		/* The device is never told what was polled. */
		static uint8_t elsewhere[8];
		queue.cq_record = elsewhere;
	} else if (!two_entries && strcmp(mistake, "none") != 0) {
		return 2;
	}
	if (two_entries || valid) {
		post_blindly(&queue, &a, &b, 3);
		return 0;
	}
	for (write = 1; write <= WRITES * DEPTH && mlx5_engine_completed(&queue) != MLX5_ENGINE_FAILED; write++) {
		post(&queue, &a, &b, lkey, 0);
		if (strcmp(mistake, "no-consumer-index") == 0 && write > cq.cqe_cnt)
			break;
		wait_for(&queue, write);
	}
	return 0;
}
