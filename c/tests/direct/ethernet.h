/* A queue pair for Ethernet packets, with a flow that leads packets to it: objects of libibverbs alone. Also valid
 * C++17. */
#ifndef ETHERNET_H
#define ETHERNET_H

#include <unistd.h>

#include "verbs.h"

enum { PACKET = 60, SLOT = 256, FLOW_TAG = 7, ETHERNET = 14 };

/* A queue pair that sends packets to itself. Sends and receives complete on queues of their own. */
struct wire {
	struct ibv_comp_channel *channel;
	struct ibv_cq *sends;
	struct ibv_cq *receives;
	struct ibv_qp *qp;
	struct ibv_flow *flow;
	struct ibv_mr *mr;
	uint8_t *memory;
	uint8_t mac[6];
};

static void move(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = state;
	attr.port_num = 1;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0)) == 0);
}

static struct ibv_qp *make_packet_qp(struct wire *wire)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp *qp;
	memset(&init, 0, sizeof(init));
	init.send_cq = wire->sends;
	init.recv_cq = wire->receives;
	init.qp_type = IBV_QPT_RAW_PACKET;
	init.cap.max_send_wr = init.cap.max_recv_wr = DEPTH;
	init.cap.max_send_sge = init.cap.max_recv_sge = 2;
	init.cap.max_inline_data = 220;
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

/* Leads packets to this address to the queue pair. */
static struct ibv_flow *make_flow(struct ibv_qp *qp, const uint8_t *mac)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth ethernet;
		struct ibv_flow_spec_action_tag tag;
	} rule;
	struct ibv_flow *flow;
	memset(&rule, 0, sizeof(rule));
	rule.attr.type = IBV_FLOW_ATTR_NORMAL;
	rule.attr.size = sizeof(rule);
	rule.attr.num_of_specs = 2;
	rule.attr.port = 1;
	rule.ethernet.type = IBV_FLOW_SPEC_ETH;
	rule.ethernet.size = sizeof(rule.ethernet);
	memcpy(rule.ethernet.val.dst_mac, mac, 6);
	memset(rule.ethernet.mask.dst_mac, 0xff, 6);
	rule.tag.type = IBV_FLOW_SPEC_ACTION_TAG;
	rule.tag.size = sizeof(rule.tag);
	rule.tag.tag_id = FLOW_TAG;
	flow = ibv_create_flow(qp, &rule.attr);
	CHECK(flow);
	return flow;
}

static void open_wire(struct wire *wire)
{
	uint32_t process = (uint32_t)getpid();
	void *memory = NULL;
	memset(wire, 0, sizeof(*wire));
	/* A group, which a port gives back to itself, and which no other process has. */
	wire->mac[0] = 3;
	memcpy(wire->mac + 2, &process, 4);
	CHECK(posix_memalign(&memory, 4096, MEMORY) == 0);
	memset(memory, 0, MEMORY);
	wire->memory = (uint8_t *)memory;
	wire->mr = ibv_reg_mr(pd, memory, MEMORY, IBV_ACCESS_LOCAL_WRITE);
	wire->channel = ibv_create_comp_channel(context);
	CHECK(wire->mr && wire->channel);
	wire->sends = ibv_create_cq(context, CQES, NULL, NULL, 0);
	wire->receives = ibv_create_cq(context, CQES, NULL, wire->channel, 0);
	CHECK(wire->sends && wire->receives);
	wire->qp = make_packet_qp(wire);
	move(wire->qp, IBV_QPS_INIT);
	move(wire->qp, IBV_QPS_RTR);
	move(wire->qp, IBV_QPS_RTS);
	wire->flow = make_flow(wire->qp, wire->mac);
}

static void close_wire(struct wire *wire)
{
	CHECK(ibv_destroy_flow(wire->flow) == 0);
	CHECK(ibv_destroy_qp(wire->qp) == 0);
	CHECK(ibv_destroy_cq(wire->sends) == 0);
	CHECK(ibv_destroy_cq(wire->receives) == 0);
	CHECK(ibv_destroy_comp_channel(wire->channel) == 0);
	CHECK(ibv_dereg_mr(wire->mr) == 0);
	free(wire->memory);
}

/* The memory of a slot. */
static struct ibv_sge slot_of(const struct wire *wire, uint32_t slot, uint32_t length)
{
	struct ibv_sge entry;
	entry.addr = (uint64_t)(uintptr_t)wire->memory + slot * SLOT;
	entry.length = length;
	entry.lkey = wire->mr->lkey;
	return entry;
}

/* Writes a packet of UDP over IPv4, without checksums, to itself. Its payload is a number and zeros. */
static void write_packet(const struct wire *wire, uint8_t *packet, uint32_t length, uint8_t number)
{
	uint32_t ip = length - ETHERNET, udp = ip - 20;
	memset(packet, 0, length);
	memcpy(packet, wire->mac, 6);
	memcpy(packet + 6, wire->mac, 6);
	packet[6] = 2;
	packet[12] = 8;
	packet[14] = 0x45;
	packet[16] = (uint8_t)(ip >> 8);
	packet[17] = (uint8_t)ip;
	packet[22] = 64;
	packet[23] = 17;
	memcpy(packet + 26, "\xc0\x00\x02\x01\xc0\x00\x02\x02\x23\x28\x23\x28", 12);
	packet[38] = (uint8_t)(udp >> 8);
	packet[39] = (uint8_t)udp;
	packet[42] = number;
}

#endif
