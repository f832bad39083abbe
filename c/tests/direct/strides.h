/* Striding receive queues: several packets in the memory of each receive. */
#ifndef STRIDES_H
#define STRIDES_H

#include <infiniband/mlx5dv.h>

#include "packets.h"

enum { STRIDE = 64, STRIDES = 8, WQE = STRIDE * STRIDES, WQES = 4 };

/* A striding queue, with the queue pair to which a flow leads packets. */
struct striding {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_wq *wq;
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp;
};

static struct mlx5dv_striding_rq_init_attr stride_attributes(void)
{
	struct mlx5dv_striding_rq_init_attr made;
	memset(&made, 0, sizeof(made));
	made.single_stride_log_num_of_bytes = 6;
	made.single_wqe_log_num_of_strides = 3;
	return made;
}

/* What every work queue for packets is made with. */
static struct ibv_wq_init_attr plain_attributes(struct ibv_cq *cq)
{
	struct ibv_wq_init_attr made;
	memset(&made, 0, sizeof(made));
	made.wq_type = IBV_WQT_RQ;
	made.max_wr = WQES;
	made.max_sge = 1;
	made.pd = pd;
	made.cq = cq;
	return made;
}

static void ready_wq(struct ibv_wq *wq)
{
	struct ibv_wq_attr ready;
	memset(&ready, 0, sizeof(ready));
	ready.attr_mask = IBV_WQ_ATTR_STATE;
	ready.wq_state = IBV_WQS_RDY;
	CHECK(ibv_modify_wq(wq, &ready) == 0);
}

/* A striding queue in the state IBV_WQS_RESET. */
static struct ibv_wq *make_new_wq(struct ibv_cq *cq)
{
	struct ibv_wq_init_attr plain = plain_attributes(cq);
	struct mlx5dv_wq_init_attr attr;
	struct ibv_wq *wq;
	memset(&attr, 0, sizeof(attr));
	attr.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ;
	attr.striding_rq_attrs = stride_attributes();
	wq = mlx5dv_create_wq(context, &plain, &attr);
	CHECK(wq);
	return wq;
}

static struct ibv_wq *make_wq(struct ibv_cq *cq)
{
	struct ibv_wq *wq = make_new_wq(cq);
	ready_wq(wq);
	return wq;
}

/* Leads the packets of a wire to a striding queue. */
static void stride(struct striding *made, struct wire *wire)
{
	static uint8_t key[40];
	struct ibv_rwq_ind_table_init_attr table;
	struct ibv_qp_init_attr_ex init;
	memset(made, 0, sizeof(*made));
	made->channel = ibv_create_comp_channel(context);
	CHECK(made->channel);
	made->cq = ibv_create_cq(context, CQES, NULL, made->channel, 0);
	CHECK(made->cq);
	made->wq = make_wq(made->cq);
	memset(&table, 0, sizeof(table));
	table.ind_tbl = &made->wq;
	made->table = ibv_create_rwq_ind_table(context, &table);
	CHECK(made->table);
	memset(&init, 0, sizeof(init));
	init.qp_type = IBV_QPT_RAW_PACKET;
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
	init.pd = pd;
	init.rwq_ind_tbl = made->table;
	init.rx_hash_conf.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
	init.rx_hash_conf.rx_hash_key_len = sizeof(key);
	init.rx_hash_conf.rx_hash_key = key;
	init.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
	made->qp = ibv_create_qp_ex(context, &init);
	CHECK(made->qp);
	CHECK(ibv_destroy_flow(wire->flow) == 0);
	wire->flow = make_flow(made->qp, wire->mac);
}

static void unstride(struct striding *made, struct wire *wire)
{
	CHECK(ibv_destroy_flow(wire->flow) == 0);
	wire->flow = make_flow(wire->qp, wire->mac);
	CHECK(ibv_destroy_qp(made->qp) == 0);
	CHECK(ibv_destroy_rwq_ind_table(made->table) == 0);
	CHECK(ibv_destroy_wq(made->wq) == 0);
	CHECK(ibv_destroy_cq(made->cq) == 0);
	CHECK(ibv_destroy_comp_channel(made->channel) == 0);
}

/* Posts the receive with this number, which is also its place in the memory. */
static enum mlx5_status post_wqe(const struct wire *wire, struct mlx5_packets *packets, uint32_t number, uint32_t length)
{
	struct ibv_sge entry = slot_of(wire, 0, length);
	struct mlx5_receive receive;
	entry.addr += number * WQE;
	memset(&receive, 0, sizeof(receive));
	receive.id = number;
	receive.sg_list = &entry;
	receive.num_sge = 1;
	return mlx5_packets_post(packets, &receive, 1, NULL);
}

/* Sends a packet, which is inlined if it is short. */
static void send_packet(const struct wire *wire, struct handles *handles, uint32_t length, uint8_t number)
{
	struct ibv_sge entry = slot_of(wire, 16, length);
	struct mlx5_request made = request(number, MLX5_OP_SEND, MLX5_SIGNALED);
	write_packet(wire, wire->memory + 16 * SLOT, length, number);
	made.sg_list = &entry;
	made.num_sge = 1;
	OK(mlx5_sq_post(handles->sq, &made, 1, NULL));
	sent(handles, number);
}

/* The next packet: of this receive, at this stride, and with this number in its payload. */
static void arrived_at(const struct wire *wire, struct handles *handles, uint32_t wqe, uint32_t at, uint32_t length,
		       uint8_t number, int last)
{
	struct mlx5_packet packet = next_packet(handles);
	CHECK(packet.id == wqe && packet.status == IBV_WC_SUCCESS);
	CHECK(packet.offset == at * STRIDE && packet.byte_len == length && packet.flow_tag == FLOW_TAG);
	CHECK(((packet.flags & MLX5_PACKET_LAST) != 0) == (last != 0));
	CHECK((packet.flags & MLX5_PACKET_IPV4) != 0);
	CHECK(wire->memory[wqe * WQE + packet.offset + 42] == number);
}

/* Posts the receives with the numbers from one on by a single call, the last of which is so long. */
static enum mlx5_status post_wqes(const struct wire *wire, struct mlx5_packets *packets, uint32_t first, uint32_t count,
				  uint32_t last_length, uint32_t *posted)
{
	struct ibv_sge entries[2 * WQES];
	struct mlx5_receive receives[2 * WQES];
	uint32_t at;
	memset(receives, 0, sizeof(receives));
	for (at = 0; at < count; at++) {
		entries[at] = slot_of(wire, 0, at == count - 1 ? last_length : (uint32_t)WQE);
		entries[at].addr += (first + at) * WQE;
		receives[at].id = first + at;
		receives[at].sg_list = &entries[at];
		receives[at].num_sge = 1;
	}
	return mlx5_packets_post(packets, receives, count, posted);
}

static void misuse_of_strides(struct striding *queue, struct wire *wire, struct mlx5_packets *taken)
{
	struct mlx5dv_striding_rq_init_attr attr = stride_attributes();
	struct mlx5_packets *other = NULL;
	struct ibv_sge list[2];
	struct mlx5_receive receive;
	IS(MLX5_STATUS_IN_USE, mlx5_packets_take_striding(queue->wq, &attr, &other));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_take_striding(NULL, &attr, &other));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_take_striding(queue->wq, NULL, &other));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_take_striding(queue->wq, &attr, NULL));
	CHECK(mlx5_packets_ibv(taken) == NULL && mlx5_packets_fd(taken) == queue->channel->fd);
	CHECK(mlx5_packets_capacity(taken) >= WQES);
	IS(MLX5_STATUS_INVALID_ARGUMENT, post_wqe(wire, taken, 0, WQE - 1));
	CHECK(strstr(mlx5_last_error(), "512 bytes"));
	memset(&receive, 0, sizeof(receive));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_post(taken, &receive, 1, NULL));
	list[0] = list[1] = slot_of(wire, 0, WQE);
	receive.sg_list = list;
	receive.num_sge = 2;
	IS(MLX5_STATUS_TOO_MANY_SGES, mlx5_packets_post(taken, &receive, 1, NULL));
}

/* Strides that no device has, and a completion queue with fewer entries than a WQE has strides. */
static void misuse_of_other_strides(void)
{
	struct mlx5dv_striding_rq_init_attr attr = stride_attributes();
	struct mlx5_packets *other = NULL;
	struct ibv_cq *small = ibv_create_cq(context, 3, NULL, NULL, 0);
	struct ibv_wq *wq;
	CHECK(small);
	wq = make_wq(small);
	attr.single_stride_log_num_of_bytes = 32;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_take_striding(wq, &attr, &other));
	CHECK(strstr(mlx5_last_error(), "single_stride_log_num_of_bytes"));
	attr = stride_attributes();
	attr.single_wqe_log_num_of_strides = 17;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_take_striding(wq, &attr, &other));
	IS(MLX5_STATUS_CQ_TOO_SMALL, mlx5_packets_take_striding(wq, (attr = stride_attributes(), &attr), &other));
	CHECK(other == NULL && ibv_destroy_wq(wq) == 0 && ibv_destroy_cq(small) == 0);
}

/* Work queues that are not striding, of which the device tells those with WQEs as long as a striding one's; one that is
 * striding otherwise than said, or not ready; one of another driver, as far as libmlx5 looks at it. */
static void misuse_of_work_queues(void)
{
	static uint64_t device[512];
	static struct ibv_context other_context;
	static struct ibv_cq other_cq;
	static struct ibv_wq other_wq;
	struct mlx5dv_striding_rq_init_attr attr = stride_attributes();
	struct mlx5_packets *other = NULL;
	struct ibv_cq *cq = ibv_create_cq(context, CQES, NULL, NULL, 0);
	struct ibv_wq_init_attr plain = plain_attributes(cq);
	struct ibv_wq *wq;
	CHECK(cq);
	for (plain.max_sge = 1; plain.max_sge <= 2; plain.max_sge++) {
		wq = ibv_create_wq(context, &plain);
		CHECK(wq);
		ready_wq(wq);
		IS(MLX5_STATUS_WRONG_KIND, mlx5_packets_take_striding(wq, &attr, &other));
		CHECK(strstr(mlx5_last_error(), "MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ"));
		CHECK(ibv_destroy_wq(wq) == 0);
	}
	wq = make_new_wq(cq);
	IS(MLX5_STATUS_WRONG_STATE, mlx5_packets_take_striding(wq, &attr, &other));
	CHECK(strstr(mlx5_last_error(), "IBV_WQS_RDY"));
	ready_wq(wq);
	attr.single_stride_log_num_of_bytes++;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_take_striding(wq, &attr, &other));
	CHECK(strstr(mlx5_last_error(), "single_stride_log_num_of_bytes") && strstr(mlx5_last_error(), "made with 6"));
	attr = stride_attributes();
	attr.single_wqe_log_num_of_strides = 10;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_take_striding(wq, &attr, &other));
	CHECK(strstr(mlx5_last_error(), "single_wqe_log_num_of_strides") && strstr(mlx5_last_error(), "made with 3"));
	attr = stride_attributes();
	attr.two_byte_shift_en = 1;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_take_striding(wq, &attr, &other));
	CHECK(strstr(mlx5_last_error(), "two_byte_shift_en"));
	/* What was refused can be taken over. */
	attr = stride_attributes();
	OK(mlx5_packets_take_striding(wq, &attr, &other));
	mlx5_packets_abandon(other);
	other = NULL;
	CHECK(ibv_destroy_wq(wq) == 0 && ibv_destroy_cq(cq) == 0);
	other_context.device = (struct ibv_device *)device;
	other_cq.context = other_wq.context = &other_context;
	other_wq.cq = &other_cq;
	IS(MLX5_STATUS_NOT_MLX5, mlx5_packets_take_striding(&other_wq, &attr, &other));
	other_wq.cq = NULL;
	IS(MLX5_STATUS_NO_QUEUE, mlx5_packets_take_striding(&other_wq, &attr, &other));
	CHECK(other == NULL);
}

/* A receive of a wrong key stops the queue, until it went from ERR, which Linux is told of, through RESET. */
static void wrong_key(const struct striding *queue, const struct wire *wire, struct handles *handles)
{
	struct mlx5dv_striding_rq_init_attr attr = stride_attributes();
	struct wire other = *wire;
	struct ibv_mr mr = *wire->mr;
	struct mlx5_packet packet;
	struct ibv_wq_attr reset;
	mr.lkey ^= 1;
	other.mr = &mr;
	OK(post_wqe(&other, handles->packets, 0, WQE));
	/* The strides that are left before have no room for it. */
	send_packet(wire, handles, STRIDES * STRIDE, 5);
	do
		packet = next_packet(handles);
	while (packet.status == IBV_WC_SUCCESS);
	CHECK(packet.status == IBV_WC_LOC_PROT_ERR && packet.timestamp == 0);
	OK(post_wqe(wire, handles->packets, 1, WQE));
	do
		packet = next_packet(handles);
	while (packet.id != 1);
	CHECK(packet.status == IBV_WC_WR_FLUSH_ERR);
	mlx5_packets_abandon(handles->packets);
	memset(&reset, 0, sizeof(reset));
	reset.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE;
	reset.curr_wq_state = IBV_WQS_ERR;
	reset.wq_state = IBV_WQS_RESET;
	CHECK(ibv_modify_wq(queue->wq, &reset) == 0);
	ready_wq(queue->wq);
	OK(mlx5_packets_take_striding(queue->wq, &attr, &handles->packets));
	OK(post_wqe(wire, handles->packets, 3, WQE));
	send_packet(wire, handles, PACKET, 6);
	arrived_at(wire, handles, 3, 0, PACKET, 6, 0);
}

static void strides(void)
{
	struct mlx5dv_striding_rq_init_attr attr = stride_attributes();
	struct wire wire;
	struct handles handles;
	struct striding queue;
	struct mlx5_packet packet;
	uint32_t round, at;
	open_device();
	open_wire(&wire);
	misuse_of_other_strides();
	misuse_of_work_queues();
	stride(&queue, &wire);
	IS(MLX5_STATUS_NO_QUEUE, mlx5_packets_take(queue.qp, 0, &handles.packets));
	CHECK(strstr(mlx5_last_error(), "mlx5_packets_take_striding"));
	OK(mlx5_cq_take(wire.sends, 0, &handles.cq));
	OK(mlx5_sq_take(wire.qp, handles.cq, 0, 0, &handles.sq));
	OK(mlx5_packets_take_striding(queue.wq, &attr, &handles.packets));
	misuse_of_strides(&queue, &wire, handles.packets);
	for (round = 0; round < 20; round++) {
		uint8_t number = (uint8_t)(10 * round);
		uint32_t posted = 9;
		/* Those before one that is refused are posted. */
		IS(MLX5_STATUS_INVALID_ARGUMENT, post_wqes(&wire, handles.packets, 0, 2, WQE - 1, &posted));
		CHECK(posted == 1);
		OK(post_wqes(&wire, handles.packets, 1, 2, WQE, &posted));
		CHECK(posted == 2);
		/* Eight packets of a stride each, behind an event for the first. */
		OK(mlx5_packets_arm(handles.packets));
		for (at = 0; at < STRIDES; at++)
			send_packet(&wire, &handles, PACKET, (uint8_t)(number + at));
		OK(mlx5_packets_wait(handles.packets, -1));
		for (at = 0; at < STRIDES; at++)
			arrived_at(&wire, &handles, 0, at, PACKET, (uint8_t)(number + at), at == STRIDES - 1);
		/* Four strides, and then seven, for which there is no room in the same memory. */
		send_packet(&wire, &handles, 3 * STRIDE + 1, number);
		arrived_at(&wire, &handles, 1, 0, 3 * STRIDE + 1, number, 0);
		send_packet(&wire, &handles, 7 * STRIDE, number);
		packet = next_packet(&handles);
		CHECK(packet.id == 1 && packet.status == IBV_WC_SUCCESS && packet.byte_len == 0);
		CHECK(packet.flags == MLX5_PACKET_LAST);
		arrived_at(&wire, &handles, 2, 0, 7 * STRIDE, number, 0);
		send_packet(&wire, &handles, PACKET, number);
		arrived_at(&wire, &handles, 2, 7, PACKET, number, 1);
		CHECK(mlx5_packets_poll(handles.packets, &packet, 1) == 0);
	}
	/* As many as fit, of a longer list. */
	IS(MLX5_STATUS_QUEUE_FULL, post_wqes(&wire, handles.packets, 0, WQES + 1, WQE, &at));
	CHECK(at == WQES && mlx5_packets_capacity(handles.packets) == WQES);
	for (at = 0; at < WQES; at++) {
		send_packet(&wire, &handles, 8 * STRIDE, (uint8_t)at);
		arrived_at(&wire, &handles, at, 0, 8 * STRIDE, (uint8_t)at, 1);
	}
	/* All are used up, so that the queue can be taken over again. */
	mlx5_packets_abandon(handles.packets);
	OK(mlx5_packets_take_striding(queue.wq, &attr, &handles.packets));
	OK(post_wqe(&wire, handles.packets, 3, WQE));
	send_packet(&wire, &handles, PACKET, 77);
	arrived_at(&wire, &handles, 3, 0, PACKET, 77, 0);
	wrong_key(&queue, &wire, &handles);
	mlx5_packets_abandon(handles.packets);
	OK(mlx5_sq_give_back(handles.sq));
	OK(mlx5_cq_give_back(handles.cq));
	unstride(&queue, &wire);
	close_wire(&wire);
	close_device();
}

#endif
