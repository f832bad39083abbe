/* Ethernet packets by libmlx5direct. */
#ifndef PACKETS_H
#define PACKETS_H

#include "ends.h"
#include "ethernet.h"

/* The handles of a wire. */
struct handles {
	struct mlx5_cq *cq;
	struct mlx5_sq *sq;
	struct mlx5_packets *packets;
};

static void take_wire(struct wire *wire, struct handles *handles)
{
	OK(mlx5_cq_take(wire->sends, 0, &handles->cq));
	OK(mlx5_sq_take(wire->qp, handles->cq, 0, MLX5_SQ_OWN_REGISTER, &handles->sq));
	OK(mlx5_packets_take(wire->qp, 0, &handles->packets));
	CHECK(mlx5_packets_ibv(handles->packets) == wire->qp);
	CHECK(mlx5_packets_capacity(handles->packets) >= DEPTH);
	CHECK(mlx5_packets_fd(handles->packets) == wire->channel->fd);
}

static void post_slot(const struct wire *wire, struct handles *handles, uint32_t slot, uint32_t length)
{
	struct ibv_sge entry = slot_of(wire, slot, length);
	struct mlx5_receive receive;
	uint32_t posted = 0;
	memset(&receive, 0, sizeof(receive));
	receive.id = slot;
	receive.sg_list = &entry;
	receive.num_sge = 1;
	OK(mlx5_packets_post(handles->packets, &receive, 1, &posted));
	CHECK(posted == 1);
}

static struct mlx5_packet next_packet(struct handles *handles)
{
	struct mlx5_packet packet;
	int count;
	while ((count = mlx5_packets_poll(handles->packets, &packet, 1)) == 0)
		sched_yield();
	CHECK(count == 1);
	return packet;
}

/* Waits for the completion of a send. */
static void sent(struct handles *handles, uint64_t id)
{
	struct mlx5_completion done;
	int count;
	while ((count = mlx5_cq_poll(handles->cq, &done, 1)) == 0)
		sched_yield();
	CHECK(count == 1 && done.status == IBV_WC_SUCCESS && done.id == id);
}

/* Sends a packet by this request, whose list it is, and returns it as it arrived in a slot. */
static struct mlx5_packet carry(const struct wire *wire, struct handles *handles, struct mlx5_request *made,
				   uint32_t slot)
{
	struct mlx5_packet packet;
	post_slot(wire, handles, slot, SLOT);
	made->id = slot;
	OK(mlx5_sq_post(handles->sq, made, 1, NULL));
	sent(handles, slot);
	packet = next_packet(handles);
	CHECK(packet.id == slot && packet.status == IBV_WC_SUCCESS && packet.flow_tag == FLOW_TAG);
	CHECK((packet.flags & (MLX5_PACKET_VLAN | MLX5_PACKET_TCP)) == 0);
	return packet;
}

/* Packets in each form of a request. */
static void forms(const struct wire *wire, struct handles *handles)
{
	uint8_t *packet = wire->memory + 8 * SLOT, *arrived;
	struct ibv_sge list[2];
	struct mlx5_request made = request(0, MLX5_OP_SEND, MLX5_SIGNALED);
	struct mlx5_packet came;
	uint64_t before;
	write_packet(wire, packet, PACKET, 1);
	list[0] = slot_of(wire, 8, PACKET);
	made.sg_list = list;
	made.num_sge = 1;
	came = carry(wire, handles, &made, 0);
	CHECK(came.byte_len == PACKET && memcmp(wire->memory, packet, PACKET) == 0);
	CHECK((came.flags & (MLX5_PACKET_IPV4 | MLX5_PACKET_UDP)) == (MLX5_PACKET_IPV4 | MLX5_PACKET_UDP));
	CHECK((came.flags & MLX5_PACKET_IP_OK) == 0);
	before = came.timestamp;

	made.flags = MLX5_SIGNALED | MLX5_INLINE;
	packet[42] = 2;
	came = carry(wire, handles, &made, 1);
	CHECK(memcmp(wire->memory + SLOT, packet, PACKET) == 0 && came.timestamp > before);

	/* With checksums. */
	made.flags = MLX5_SIGNALED | MLX5_CHECKSUMS;
	came = carry(wire, handles, &made, 2);
	CHECK((came.flags & MLX5_PACKET_IP_OK) != 0 && (came.flags & MLX5_PACKET_L4_OK) != 0);
	arrived = wire->memory + 2 * SLOT;
	CHECK(memcmp(arrived, packet, 24) == 0 && memcmp(arrived + 24, packet + 24, 2) != 0);

	/* A header in the WQE, and the rest by pointer. */
	made.flags = MLX5_SIGNALED | MLX5_INLINE_HEADER;
	made.num_sge = 2;
	list[0].length = ETHERNET + 4;
	list[0].lkey = 0;
	list[1] = slot_of(wire, 8, PACKET - list[0].length);
	list[1].addr += list[0].length;
	came = carry(wire, handles, &made, 3);
	CHECK(came.byte_len == PACKET && memcmp(wire->memory + 3 * SLOT, packet, PACKET) == 0);

	/* A tag behind the addresses. */
	list[0] = slot_of(wire, 8, PACKET);
	made.num_sge = 1;
	made.flags = MLX5_SIGNALED | MLX5_VLAN;
	made.immediate = 0x2064;
	came = carry(wire, handles, &made, 4);
	arrived = wire->memory + 4 * SLOT;
	CHECK(came.byte_len == PACKET + 4 && memcmp(arrived, packet, 12) == 0);
	CHECK(memcmp(arrived + 12, "\x81\x00\x20\x64", 4) == 0);
	CHECK(memcmp(arrived + 16, packet + 12, PACKET - 12) == 0);
}

/* A large payload behind one header, which the device cuts into three packets. */
static void large_send(const struct wire *wire, struct handles *handles)
{
	enum { HEADERS = 54, SEGMENT = 100, PAYLOAD = 250 };
	uint8_t *header = wire->memory + 8 * SLOT, *payload = wire->memory + 9 * SLOT;
	struct ibv_sge list[2];
	struct mlx5_request made = request(1, MLX5_OP_LARGE_SEND, MLX5_SIGNALED | MLX5_CHECKSUMS);
	uint32_t at;
	write_packet(wire, header, HEADERS, 0);
	header[23] = 6;
	header[46] = 5 << 4;
	for (at = 0; at < PAYLOAD; at++)
		payload[at] = (uint8_t)at;
	list[0] = slot_of(wire, 8, HEADERS);
	list[0].lkey = 0;
	list[1] = slot_of(wire, 9, PAYLOAD);
	made.sg_list = list;
	made.num_sge = 2;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(handles->sq, &made, 1, NULL));
	made.immediate = SEGMENT;
	for (at = 0; at < 3; at++)
		post_slot(wire, handles, at, SLOT);
	OK(mlx5_sq_post(handles->sq, &made, 1, NULL));
	sent(handles, 1);
	for (at = 0; at < 3; at++) {
		uint32_t length = at == 2 ? PAYLOAD - 2 * SEGMENT : SEGMENT;
		const uint8_t *arrived = wire->memory + at * SLOT;
		struct mlx5_packet packet = next_packet(handles);
		CHECK(packet.id == at && packet.byte_len == HEADERS + length);
		CHECK((packet.flags & MLX5_PACKET_TCP) != 0 && (packet.flags & MLX5_PACKET_L4_OK) != 0);
		CHECK(memcmp(arrived, header, 14) == 0 && arrived[41] == (uint8_t)(at * SEGMENT));
		CHECK(memcmp(arrived + HEADERS, payload + at * SEGMENT, length) == 0);
	}
}

/* Three packets by one request, from memory or within the WQE. */
static void multi_packet(const struct wire *wire, struct handles *handles, uint32_t flags)
{
	struct ibv_sge list[65];
	struct mlx5_request made = request(2, MLX5_OP_MULTI_PACKET, flags | MLX5_SIGNALED | MLX5_CHECKSUMS);
	uint32_t at;
	for (at = 0; at < 65; at++)
		list[at] = slot_of(wire, 8 + at % 3, PACKET + at % 3);
	made.sg_list = list;
	made.num_sge = 65;
	CHECK(mlx5_sq_post(handles->sq, &made, 1, NULL) != MLX5_STATUS_OK);
	CHECK(strstr(mlx5_last_error(), "packets"));
	made.num_sge = 3;
	for (at = 0; at < 3; at++) {
		write_packet(wire, wire->memory + (8 + at) * SLOT, PACKET + at, (uint8_t)(50 + at));
		post_slot(wire, handles, at, SLOT);
	}
	OK(mlx5_sq_post(handles->sq, &made, 1, NULL));
	sent(handles, 2);
	for (at = 0; at < 3; at++) {
		struct mlx5_packet packet = next_packet(handles);
		CHECK(packet.id == at && packet.byte_len == PACKET + at && wire->memory[at * SLOT + 42] == 50 + at);
		CHECK((packet.flags & MLX5_PACKET_L4_OK) != 0);
	}
}

/* A batch of packets, and an event for the first. */
static void several(const struct wire *wire, struct handles *handles)
{
	uint8_t *packet = wire->memory + 8 * SLOT;
	struct ibv_sge entry = slot_of(wire, 8, PACKET);
	struct mlx5_request made = request(0, MLX5_OP_SEND, MLX5_INLINE);
	struct mlx5_packet came[8];
	uint32_t at, count = 0;
	made.sg_list = &entry;
	made.num_sge = 1;
	OK(mlx5_packets_arm(handles->packets));
	IS(MLX5_STATUS_TIMED_OUT, mlx5_packets_wait(handles->packets, 0));
	OK(mlx5_sq_begin(handles->sq));
	for (at = 0; at < 4; at++) {
		post_slot(wire, handles, at, SLOT);
		packet[42] = (uint8_t)(100 + at);
		made.id = at;
		made.flags = MLX5_INLINE | (at == 3 ? MLX5_SIGNALED : 0);
		OK(mlx5_sq_append(handles->sq, &made));
	}
	OK(mlx5_sq_ring(handles->sq));
	sent(handles, 3);
	OK(mlx5_packets_wait(handles->packets, -1));
	while (count < 4) {
		int found = mlx5_packets_poll(handles->packets, came + count, 8 - count);
		CHECK(found >= 0);
		count += (uint32_t)found;
	}
	CHECK(count == 4);
	for (at = 0; at < 4; at++)
		CHECK(came[at].id == at && wire->memory[at * SLOT + 42] == 100 + at);
}

/* A packet that waits for a time, behind a request for it. */
static void times(const struct wire *wire, struct handles *handles)
{
	uint8_t *packet = wire->memory + 8 * SLOT;
	struct ibv_sge entry = slot_of(wire, 8, PACKET);
	struct mlx5_request made[2];
	struct mlx5_packet came;
	uint64_t mask = 0, time;
	uint32_t posted = 0;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_time_mask(NULL, &mask));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_time_mask(context, NULL));
	OK(mlx5_time_mask(context, &mask));
	CHECK(mask >> 30 != 0 && (mask & (mask + 1)) == 0);
	write_packet(wire, packet, PACKET, 7);
	made[1] = request(0, MLX5_OP_SEND, MLX5_SIGNALED | MLX5_INLINE);
	made[1].sg_list = &entry;
	made[1].num_sge = 1;
	came = carry(wire, handles, &made[1], 0);

	/* A few milliseconds later. */
	time = came.timestamp + (mask >> 11);
	made[0] = request(6, MLX5_OP_WAIT_UNTIL, MLX5_SIGNALED);
	made[0].time = time;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(handles->sq, made, 2, &posted));
	CHECK(posted == 0 && strstr(mlx5_last_error(), "mlx5_time_mask"));
	made[0].time_mask = mask;
	made[1].id = 7;
	post_slot(wire, handles, 1, SLOT);
	OK(mlx5_sq_post(handles->sq, made, 2, &posted));
	sent(handles, 6);
	sent(handles, 7);
	came = next_packet(handles);
	CHECK(came.id == 1 && came.timestamp >= time);
}

static void misuse_of_packets(const struct wire *wire, struct handles *handles)
{
	struct mlx5_packets *other = NULL;
	struct mlx5_packet packet;
	struct ibv_sge list[2];
	struct mlx5_request made = request(0, MLX5_OP_SEND, MLX5_SIGNALED);
	IS(MLX5_STATUS_IN_USE, mlx5_packets_take(wire->qp, 0, &other));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_take(NULL, 0, &other));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_take(wire->qp, 0, NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_packets_post(NULL, NULL, 0, NULL));
	CHECK(mlx5_packets_poll(handles->packets, NULL, 1) == -MLX5_STATUS_INVALID_ARGUMENT);
	CHECK(mlx5_packets_poll(NULL, &packet, 1) == -MLX5_STATUS_INVALID_ARGUMENT);
	CHECK(mlx5_packets_fd(NULL) == -1 && mlx5_packets_capacity(NULL) == 0 && mlx5_packets_ibv(NULL) == NULL);

	list[0] = slot_of(wire, 8, PACKET);
	list[1] = list[0];
	made.sg_list = list;
	made.num_sge = 2;
	made.flags = MLX5_INLINE_HEADER | MLX5_VLAN;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(handles->sq, &made, 1, NULL));
	made.flags = MLX5_INLINE_HEADER | MLX5_INLINE;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(handles->sq, &made, 1, NULL));
	made.flags = MLX5_INLINE_HEADER;
	made.num_sge = 0;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(handles->sq, &made, 1, NULL));
	made.num_sge = 1;
	made.flags = MLX5_SOLICITED;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(handles->sq, &made, 1, NULL));
	made.flags = 0;
	made.operation = MLX5_OP_WRITE;
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_sq_post(handles->sq, &made, 1, NULL));
}

/* Queue pairs whose packets cannot be taken over. */
static void misuse_of_packet_queues(struct wire *wire)
{
	struct mlx5_packets *other = NULL;
	struct ibv_qp *fresh = make_packet_qp(wire), *rc;
	move(fresh, IBV_QPS_INIT);
	IS(MLX5_STATUS_WRONG_STATE, mlx5_packets_take(fresh, 0, &other));
	CHECK(strstr(mlx5_last_error(), "RTR"));
	CHECK(ibv_destroy_qp(fresh) == 0);
	rc = make_qp(wire->receives, IBV_QPT_RC);
	to_init(rc);
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_packets_take(rc, 0, &other));
	CHECK(ibv_destroy_qp(rc) == 0 && other == NULL);
}

/* A receive that is too short stops the queue. */
static void short_receive(const struct wire *wire, struct handles *handles)
{
	struct ibv_sge entry = slot_of(wire, 8, PACKET);
	struct mlx5_request made = request(9, MLX5_OP_SEND, MLX5_SIGNALED | MLX5_INLINE);
	struct mlx5_packet packet;
	made.sg_list = &entry;
	made.num_sge = 1;
	post_slot(wire, handles, 5, PACKET / 2);
	write_packet(wire, wire->memory + 8 * SLOT, PACKET, 9);
	OK(mlx5_sq_post(handles->sq, &made, 1, NULL));
	sent(handles, 9);
	packet = next_packet(handles);
	CHECK(packet.id == 5 && packet.status == IBV_WC_LOC_LEN_ERR && packet.timestamp == 0);
	post_slot(wire, handles, 6, SLOT);
	packet = next_packet(handles);
	CHECK(packet.id == 6 && packet.status == IBV_WC_WR_FLUSH_ERR);
}

static void packets(void)
{
	struct wire wire;
	struct handles handles;
	open_device();
	open_wire(&wire);
	misuse_of_packet_queues(&wire);
	take_wire(&wire, &handles);
	forms(&wire, &handles);
	several(&wire, &handles);
	large_send(&wire, &handles);
	multi_packet(&wire, &handles, 0);
	multi_packet(&wire, &handles, MLX5_INLINE);
	times(&wire, &handles);
	misuse_of_packets(&wire, &handles);
	short_receive(&wire, &handles);
	OK(mlx5_sq_give_back(handles.sq));
	OK(mlx5_cq_give_back(handles.cq));
	mlx5_packets_abandon(handles.packets);
	mlx5_packets_abandon(NULL);
	close_wire(&wire);
	close_device();
}

#endif
