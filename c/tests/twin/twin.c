/* The calls of mlx5_ring.h as functions that a test loads. Also valid C++17. */
#include "mlx5_ring.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The data path of one end. */
struct twin {
	struct mlx5_ring_cq cq;
	struct mlx5_ring_sq sq;
	struct mlx5_ring_rq rq;
};

void twin_free(struct twin *twin);
struct twin *twin_new(struct ibv_qp *qp, struct ibv_cq *cq, uint32_t flags);
int twin_write_inline(struct twin *twin, uint64_t id, const void *data, uint32_t length, uint64_t remote_addr,
		      uint32_t rkey, uint32_t flags);
int twin_send_inline(struct twin *twin, uint64_t id, const void *data, uint32_t length, uint32_t flags);
int twin_write(struct twin *twin, uint64_t id, const struct ibv_sge *sge, uint64_t remote_addr, uint32_t rkey,
	       uint32_t flags);
int twin_send(struct twin *twin, uint64_t id, const struct ibv_sge *sge, uint32_t flags);
int twin_nop(struct twin *twin, uint64_t id, uint32_t flags);
int twin_fire(struct twin *twin, uint64_t id, const void *data, uint32_t length, uint64_t remote_addr, uint32_t rkey,
	      uint32_t flags);
int twin_packet_inline(struct twin *twin, uint64_t id, const void *data, uint32_t length, uint32_t flags);
int twin_packet(struct twin *twin, uint64_t id, const struct ibv_sge *sge, uint32_t flags);
int twin_fire_packet(struct twin *twin, uint64_t id, const void *data, uint32_t length, uint32_t flags);
int twin_receive(struct twin *twin, uint64_t id, const struct ibv_sge *sge);
int twin_poll(struct twin *twin, uint64_t *id);
int twin_poll_receive(struct twin *twin, uint64_t *id, uint32_t *length);

struct twin *twin_new(struct ibv_qp *qp, struct ibv_cq *cq, uint32_t flags)
{
	struct mlx5dv_qp dv_qp;
	struct mlx5dv_cq dv_cq;
	struct mlx5dv_obj object;
	struct twin *made = (struct twin *)calloc(1, sizeof(*made));
	memset(&dv_qp, 0, sizeof(dv_qp));
	memset(&dv_cq, 0, sizeof(dv_cq));
	object.qp.in = qp;
	object.qp.out = &dv_qp;
	object.cq.in = cq;
	object.cq.out = &dv_cq;
	if (made == NULL || mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) != 0 ||
	    mlx5_ring_cq_init(&made->cq, &dv_cq) != MLX5_STATUS_OK ||
	    mlx5_ring_sq_init(&made->sq, &dv_qp, qp->qp_num, 0, flags) != MLX5_STATUS_OK ||
	    mlx5_ring_rq_init(&made->rq, &dv_qp, 0) != MLX5_STATUS_OK) {
		twin_free(made);
		return NULL;
	}
	return made;
}

void twin_free(struct twin *twin)
{
	if (twin != NULL) {
		mlx5_ring_sq_end(&twin->sq);
		mlx5_ring_rq_end(&twin->rq);
	}
	free(twin);
}

int twin_write_inline(struct twin *twin, uint64_t id, const void *data, uint32_t length, uint64_t remote_addr,
		      uint32_t rkey, uint32_t flags)
{
	return mlx5_ring_write_inline(&twin->sq, id, data, length, remote_addr, rkey, flags);
}

int twin_send_inline(struct twin *twin, uint64_t id, const void *data, uint32_t length, uint32_t flags)
{
	return mlx5_ring_send_inline(&twin->sq, id, data, length, flags);
}

int twin_write(struct twin *twin, uint64_t id, const struct ibv_sge *sge, uint64_t remote_addr, uint32_t rkey,
	       uint32_t flags)
{
	return mlx5_ring_write(&twin->sq, id, sge, remote_addr, rkey, flags);
}

int twin_send(struct twin *twin, uint64_t id, const struct ibv_sge *sge, uint32_t flags)
{
	return mlx5_ring_send(&twin->sq, id, sge, flags);
}

int twin_nop(struct twin *twin, uint64_t id, uint32_t flags)
{
	return mlx5_ring_nop(&twin->sq, id, flags);
}

static const uint8_t others[MLX5_RING_WRITE_INLINE] = { 0xa5, 0xa5, 0xa5 };

/* Puts these bytes into a prepared WQE in two parts, and posts it. */
static int set_and_fire(struct twin *twin, uint64_t id, struct mlx5_ring_prepared *prepared, const void *data)
{
	uint32_t length = prepared->length, half = length / 2;
	int status = mlx5_ring_prepared_set(prepared, half, (const uint8_t *)data + half, length - half);
	if (status == MLX5_STATUS_OK)
		status = mlx5_ring_prepared_set(prepared, 0, data, half);
	return status == MLX5_STATUS_OK ? (int)mlx5_ring_fire(&twin->sq, id, prepared) : status;
}

int twin_fire(struct twin *twin, uint64_t id, const void *data, uint32_t length, uint64_t remote_addr, uint32_t rkey,
	      uint32_t flags)
{
	struct mlx5_ring_prepared prepared;
	int status = mlx5_ring_prepare_write(&prepared, others, length, remote_addr, rkey, flags);
	return status == MLX5_STATUS_OK ? set_and_fire(twin, id, &prepared, data) : status;
}

int twin_fire_packet(struct twin *twin, uint64_t id, const void *data, uint32_t length, uint32_t flags)
{
	struct mlx5_ring_prepared prepared;
	int status = mlx5_ring_prepare_packet(&prepared, others, length, flags);
	return status == MLX5_STATUS_OK ? set_and_fire(twin, id, &prepared, data) : status;
}

int twin_packet_inline(struct twin *twin, uint64_t id, const void *data, uint32_t length, uint32_t flags)
{
	return mlx5_ring_packet_inline(&twin->sq, id, data, length, flags);
}

int twin_packet(struct twin *twin, uint64_t id, const struct ibv_sge *sge, uint32_t flags)
{
	return mlx5_ring_packet(&twin->sq, id, sge, flags);
}

int twin_receive(struct twin *twin, uint64_t id, const struct ibv_sge *sge)
{
	return mlx5_ring_receive(&twin->rq, id, sge);
}

int twin_poll(struct twin *twin, uint64_t *id)
{
	return mlx5_ring_poll(&twin->cq, &twin->sq, id);
}

int twin_poll_receive(struct twin *twin, uint64_t *id, uint32_t *length)
{
	const uint8_t *cqe = mlx5_ring_cq_peek(&twin->cq);
	int status;
	if (cqe == NULL)
		return -1;
	status = mlx5_ring_rq_retire(&twin->rq, cqe, id, length);
	mlx5_ring_cq_pass(&twin->cq);
	return status;
}

#ifdef __cplusplus
}
#endif
