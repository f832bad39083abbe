/* A verbs program whose data path is mlx5_ring.h, without any library of this project. Also valid C++17. It runs one
 * scenario. */
#include "mlx5_ring.h"
#include "mlx5_engine.h"

#include "../direct/ethernet.h"

#define IS(status, call)                                                                           \
	do {                                                                                       \
		enum mlx5_status found = (call);                                                   \
		if (found != (status)) {                                                           \
			fprintf(stderr, "%s:%d: %s is %d\n", __FILE__, __LINE__, #call,            \
				(int)found);                                                       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define OK(call) IS(MLX5_STATUS_OK, call)

enum { REQUESTS = 32, REMOTE_ACCESS = 0x13, FLUSHED = 0x05 };

/* One end, with its queues. */
struct side {
	struct end end;
	struct mlx5_ring_cq cq;
	struct mlx5_ring_sq sq;
	struct mlx5_ring_rq rq;
};

static void start(struct side *side, uint32_t flags)
{
	struct mlx5dv_qp qp;
	struct mlx5dv_cq cq;
	struct mlx5dv_obj object;
	memset(&qp, 0, sizeof(qp));
	memset(&cq, 0, sizeof(cq));
	object.qp.in = side->end.qp;
	object.qp.out = &qp;
	object.cq.in = side->end.ibv_cq;
	object.cq.out = &cq;
	CHECK(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) == 0);
	OK(mlx5_ring_cq_init(&side->cq, &cq));
	/* One block would be kept for a signaled request for ever. */
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_ring_sq_init(&side->sq, &qp, side->end.qp->qp_num, 1, flags));
	OK(mlx5_ring_sq_init(&side->sq, &qp, side->end.qp->qp_num, REQUESTS, flags));
	OK(mlx5_ring_rq_init(&side->rq, &qp, 0));
}

static void stop(struct side *side)
{
	mlx5_ring_sq_end(&side->sq);
	mlx5_ring_rq_end(&side->rq);
}

static void make_sides(struct side *a, struct side *b, uint32_t flags)
{
	make_pair(&a->end, &b->end, IBV_QPT_RC);
	start(a, flags);
	start(b, 0);
}

static void end_sides(struct side *a, struct side *b)
{
	stop(a);
	stop(b);
	destroy_objects(&a->end);
	destroy_objects(&b->end);
	close_device();
}

/* Polls until a request of the queue completes, and returns its id. */
static uint64_t completed(struct side *side)
{
	uint64_t id = ~(uint64_t)0;
	int found;
	while ((found = mlx5_ring_poll(&side->cq, &side->sq, &id)) == 0)
		sched_yield();
	CHECK(found == 1);
	return id;
}

/* Waits for a CQE. */
static const uint8_t *arrived(struct side *side)
{
	const uint8_t *cqe;
	while ((cqe = mlx5_ring_cq_peek(&side->cq)) == NULL)
		sched_yield();
	return cqe;
}

/* Takes the next message of a side, which has this id and length. */
static void received(struct side *side, uint64_t expected, uint32_t bytes)
{
	const uint8_t *cqe = arrived(side);
	uint64_t id = 0;
	uint32_t length = 0;
	CHECK(mlx5_cqe_qpn(cqe) == side->end.qp->qp_num);
	OK(mlx5_ring_rq_retire(&side->rq, cqe, &id, &length));
	mlx5_ring_cq_pass(&side->cq);
	CHECK(id == expected && length == bytes);
}

static uint64_t place(const struct side *side, uint32_t offset)
{
	return (uint64_t)(uintptr_t)side->end.memory + offset;
}

/* Bytes that differ from request to request. */
static void fill(uint8_t *bytes, uint32_t length, uint32_t seed)
{
	uint32_t at;
	for (at = 0; at < length; at++)
		bytes[at] = (uint8_t)(seed * 31 + at * 7 + 1);
}

/* The peer has exactly these bytes: one behind them is still zero. */
static void check_bytes(const struct side *side, const uint8_t *bytes, uint32_t length)
{
	CHECK(memcmp(side->end.memory, bytes, length) == 0 && side->end.memory[length] == 0);
	memset(side->end.memory, 0, length + 1);
}

/* WRITEs and SENDs of every inline length. The ring's end falls into WQEs of every number of blocks. */
static void inline_lengths(uint32_t flags)
{
	static struct side a, b;
	uint8_t bytes[256];
	uint32_t length, lap;
	make_sides(&a, &b, flags);
	for (lap = 0; lap < 3; lap++) {
		for (length = 0; length <= MLX5_RING_WRITE_INLINE; length++) {
			uint32_t signaled = length % 3 == 0 ? 0 : MLX5_SIGNALED;
			fill(bytes, length, length + lap);
			OK(mlx5_ring_write_inline(&a.sq, length, bytes, length, place(&b, 0),
						  b.end.mr->rkey, signaled));
			/* An unsignaled one is retired by the NOP behind it. */
			if (signaled == 0)
				OK(mlx5_ring_nop(&a.sq, length, MLX5_SIGNALED));
			CHECK(completed(&a) == length && mlx5_ring_sq_outstanding(&a.sq) == 0);
			check_bytes(&b, bytes, length);
		}
		for (length = 0; length <= MLX5_RING_SEND_INLINE; length++) {
			struct ibv_sge into = sge(&b.end, 0, 256);
			fill(bytes, length, length + lap);
			OK(mlx5_ring_receive(&b.rq, 1000 + length, &into));
			OK(mlx5_ring_send_inline(&a.sq, length, bytes, length, MLX5_SIGNALED));
			received(&b, 1000 + length, length);
			CHECK(completed(&a) == length);
			check_bytes(&b, bytes, length);
		}
	}
	IS(MLX5_STATUS_INLINE_TOO_LONG,
	   mlx5_ring_write_inline(&a.sq, 0, bytes, MLX5_RING_WRITE_INLINE + 1, place(&b, 0), b.end.mr->rkey, 0));
	IS(MLX5_STATUS_INLINE_TOO_LONG,
	   mlx5_ring_send_inline(&a.sq, 0, bytes, MLX5_RING_SEND_INLINE + 1, 0));
	end_sides(&a, &b);
}

/* Requests of registered memory, of none and of much. */
static void pointers(uint32_t flags)
{
	static const uint32_t lengths[] = { 0, 1, 32, 33, 64, 65, 1024, 1025, 4000 };
	static struct side a, b;
	uint32_t at, lap;
	make_sides(&a, &b, flags);
	for (lap = 0; lap < 9; lap++) {
		for (at = 0; at < sizeof(lengths) / sizeof(lengths[0]); at++) {
			uint32_t length = lengths[at];
			struct ibv_sge from = sge(&a.end, 0, length), into = sge(&b.end, 0, 4096);
			fill(a.end.memory, length, at + lap);
			OK(mlx5_ring_write(&a.sq, at, &from, place(&b, 0), b.end.mr->rkey, MLX5_SIGNALED));
			CHECK(completed(&a) == at);
			check_bytes(&b, a.end.memory, length);
			OK(mlx5_ring_receive(&b.rq, at, &into));
			OK(mlx5_ring_send(&a.sq, at, &from, MLX5_SIGNALED | MLX5_SOLICITED));
			received(&b, at, length);
			CHECK(completed(&a) == at);
			check_bytes(&b, a.end.memory, length);
		}
	}
	/* Without room for a byte. */
	{
		struct ibv_sge none = sge(&b.end, 0, 0), long_one = sge(&a.end, 0, 0);
		OK(mlx5_ring_receive(&b.rq, 7, &none));
		OK(mlx5_ring_send_inline(&a.sq, 8, "", 0, MLX5_SIGNALED));
		received(&b, 7, 0);
		CHECK(completed(&a) == 8);
		long_one.length = 1u << 31;
		IS(MLX5_STATUS_SGE_TOO_LONG, mlx5_ring_send(&a.sq, 0, &long_one, MLX5_SIGNALED));
		IS(MLX5_STATUS_SGE_TOO_LONG,
		   mlx5_ring_write(&a.sq, 0, &long_one, place(&b, 0), b.end.mr->rkey, MLX5_SIGNALED));
		IS(MLX5_STATUS_SGE_TOO_LONG, mlx5_ring_receive(&b.rq, 0, &long_one));
	}
	end_sides(&a, &b);
}

/* Prepared WQEs whose payload changes in places. */
static void prepared(uint32_t flags)
{
	static const uint32_t lengths[] = { 1, 8, 28, 29, 100, MLX5_RING_WRITE_INLINE };
	static struct side a, b;
	struct mlx5_ring_prepared write, send;
	uint8_t bytes[256];
	uint32_t at, offset, part;
	make_sides(&a, &b, flags);
	for (at = 0; at < sizeof(lengths) / sizeof(lengths[0]); at++) {
		uint32_t length = lengths[at];
		fill(bytes, length, at);
		OK(mlx5_ring_prepare_write(&write, bytes, length, place(&b, 0), b.end.mr->rkey, MLX5_SIGNALED));
		OK(mlx5_ring_prepare_send(&send, bytes, length, MLX5_SIGNALED));
		for (offset = 0; offset < length; offset += 1 + offset / 3) {
			for (part = 0; part <= 17 && part <= length - offset; part += 1 + part / 2) {
				struct ibv_sge into = sge(&b.end, 0, 256);
				fill(bytes + offset, part, offset + part);
				OK(mlx5_ring_prepared_set(&write, offset, bytes + offset, part));
				OK(mlx5_ring_fire(&a.sq, part, &write));
				CHECK(completed(&a) == part);
				check_bytes(&b, bytes, length);
				OK(mlx5_ring_prepared_set(&send, offset, bytes + offset, part));
				OK(mlx5_ring_receive(&b.rq, 9, &into));
				OK(mlx5_ring_fire(&a.sq, part, &send));
				received(&b, 9, length);
				CHECK(completed(&a) == part);
				check_bytes(&b, bytes, length);
			}
		}
		IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_ring_prepared_set(&write, length, bytes, 1));
		IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_ring_prepared_set(&write, 1, bytes, length));
		IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_ring_prepared_set(&write, ~0u, bytes, 2));
	}
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_ring_prepare_send(&send, bytes, 0, 0));
	IS(MLX5_STATUS_INLINE_TOO_LONG, mlx5_ring_prepare_send(&send, bytes, MLX5_RING_SEND_INLINE + 1, 0));
	end_sides(&a, &b);
}

/* A queue refuses what it has no room for, and keeps a block for a signaled request. */
static void full(uint32_t flags)
{
	static struct side a, b;
	uint8_t bytes[MLX5_RING_WRITE_INLINE] = { 0 };
	struct ibv_sge into;
	uint64_t rkey;
	uint32_t posted, at;
	make_sides(&a, &b, flags);
	rkey = b.end.mr->rkey;
	for (posted = 0; posted < REQUESTS - 1; posted++)
		OK(mlx5_ring_nop(&a.sq, posted, 0));
	IS(MLX5_STATUS_QUEUE_FULL, mlx5_ring_nop(&a.sq, 100, 0));
	IS(MLX5_STATUS_QUEUE_FULL,
	   mlx5_ring_write_inline(&a.sq, 100, bytes, 29, place(&b, 0), (uint32_t)rkey, MLX5_SIGNALED));
	OK(mlx5_ring_nop(&a.sq, 101, MLX5_SIGNALED));
	IS(MLX5_STATUS_QUEUE_FULL, mlx5_ring_nop(&a.sq, 102, MLX5_SIGNALED));
	CHECK(completed(&a) == 101 && mlx5_ring_sq_outstanding(&a.sq) == 0);
	/* Eight of four blocks fill it. */
	for (posted = 0; posted < REQUESTS / 4; posted++)
		OK(mlx5_ring_write_inline(&a.sq, posted, bytes, sizeof(bytes), place(&b, 0), (uint32_t)rkey,
					  MLX5_SIGNALED));
	IS(MLX5_STATUS_QUEUE_FULL, mlx5_ring_nop(&a.sq, 102, MLX5_SIGNALED));
	for (at = 0; at < posted; at++)
		CHECK(completed(&a) == at);
	/* The receive queue. */
	into = sge(&b.end, 0, 64);
	for (posted = 0; mlx5_ring_receive(&b.rq, posted, &into) == MLX5_STATUS_OK; posted++)
		CHECK(posted < 1024);
	CHECK(posted >= DEPTH && mlx5_ring_rq_outstanding(&b.rq) == posted);
	for (at = 0; at < posted; at++) {
		OK(mlx5_ring_send_inline(&a.sq, at, bytes, 3, MLX5_SIGNALED));
		received(&b, at, 3);
		CHECK(completed(&a) == at);
	}
	end_sides(&a, &b);
}

/* A request fails. The rest is flushed, and after RESET the queue starts again. */
static void failure(uint32_t flags)
{
	static struct side a, b;
	struct ibv_qp_attr attr;
	uint64_t id = 0, at;
	const uint8_t *cqe;
	make_sides(&a, &b, flags);
	OK(mlx5_ring_write_inline(&a.sq, 1, "x", 1, place(&b, 0), b.end.mr->rkey, 0));
	OK(mlx5_ring_write_inline(&a.sq, 2, "x", 1, place(&b, 0), b.end.mr->rkey + 0x100, 0));
	OK(mlx5_ring_nop(&a.sq, 3, 0));
	cqe = arrived(&a);
	CHECK(mlx5_cqe_opcode(cqe) == MLX5_CQE_OP_REQUEST_ERROR);
	CHECK(mlx5_cqe_syndrome(cqe) == REMOTE_ACCESS);
	IS(MLX5_STATUS_QUEUE_STOPPED, mlx5_ring_sq_retire(&a.sq, cqe, &id));
	mlx5_ring_cq_pass(&a.cq);
	CHECK(id == 2);
	cqe = arrived(&a);
	CHECK(mlx5_cqe_opcode(cqe) == MLX5_CQE_OP_REQUEST_ERROR && mlx5_cqe_syndrome(cqe) == FLUSHED);
	CHECK(mlx5_ring_poll(&a.cq, &a.sq, &id) == -MLX5_STATUS_QUEUE_STOPPED && id == 3);
	CHECK(mlx5_ring_poll(&a.cq, &a.sq, &id) == 0 && mlx5_ring_sq_outstanding(&a.sq) == 0);
	IS(MLX5_STATUS_QUEUE_STOPPED, mlx5_ring_nop(&a.sq, 4, MLX5_SIGNALED));
	stop(&a);
	stop(&b);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RESET;
	CHECK(ibv_modify_qp(a.end.qp, &attr, IBV_QP_STATE) == 0);
	CHECK(ibv_modify_qp(b.end.qp, &attr, IBV_QP_STATE) == 0);
	to_init(a.end.qp);
	to_init(b.end.qp);
	to_rts(a.end.qp, b.end.qp->qp_num);
	to_rts(b.end.qp, a.end.qp->qp_num);
	start(&a, flags);
	start(&b, 0);
	for (at = 0; at < 100; at++) {
		OK(mlx5_ring_write_inline(&a.sq, at, "again", 5, place(&b, 0), b.end.mr->rkey, MLX5_SIGNALED));
		CHECK(completed(&a) == at && memcmp(b.end.memory, "again", 5) == 0);
	}
	/* A CQE that was retired already is of nothing. */
	cqe = a.cq.start + ((size_t)((a.cq.ci - 1) & (a.cq.count - 1)) << a.cq.shift);
	IS(MLX5_STATUS_CQ_FAILED, mlx5_ring_sq_retire(&a.sq, cqe, &id));
	end_sides(&a, &b);
}

/* The data path of a wire. */
struct line {
	struct mlx5_ring_cq sends, receives;
	struct mlx5_ring_sq sq;
	struct mlx5_ring_rq rq;
};

static void start_line(struct line *line, const struct wire *wire, uint32_t flags)
{
	struct mlx5dv_qp qp;
	struct mlx5dv_cq cq;
	struct mlx5dv_obj object;
	memset(&qp, 0, sizeof(qp));
	memset(&cq, 0, sizeof(cq));
	object.qp.in = wire->qp;
	object.qp.out = &qp;
	object.cq.in = wire->sends;
	object.cq.out = &cq;
	CHECK(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) == 0);
	OK(mlx5_ring_cq_init(&line->sends, &cq));
	object.cq.in = wire->receives;
	CHECK(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) == 0);
	OK(mlx5_ring_cq_init(&line->receives, &cq));
	OK(mlx5_ring_sq_init(&line->sq, &qp, wire->qp->qp_num, REQUESTS, flags));
	OK(mlx5_ring_rq_init(&line->rq, &qp, 0));
}

/* The packet that was sent last arrives in the only slot. */
static void carried(struct line *line, const struct wire *wire, const uint8_t *packet, uint32_t bytes)
{
	uint64_t id = 0;
	uint32_t length = 0;
	const uint8_t *cqe;
	int found;
	while ((found = mlx5_ring_poll(&line->sends, &line->sq, &id)) == 0)
		sched_yield();
	CHECK(found == 1 && id == bytes);
	while ((cqe = mlx5_ring_cq_peek(&line->receives)) == NULL)
		sched_yield();
	OK(mlx5_ring_rq_retire(&line->rq, cqe, &id, &length));
	mlx5_ring_cq_pass(&line->receives);
	CHECK(id == 5 && length == bytes && memcmp(wire->memory, packet, bytes) == 0);
}

static void await_packet(struct line *line, const struct wire *wire)
{
	struct ibv_sge slot = slot_of(wire, 0, SLOT);
	OK(mlx5_ring_receive(&line->rq, 5, &slot));
}

/* Ethernet packets of every inline length, by pointer, and prepared. */
static void packets(uint32_t flags)
{
	static struct wire wire;
	static struct line line;
	struct mlx5_ring_prepared order;
	uint8_t packet[MLX5_RING_PACKET_INLINE];
	struct ibv_sge entry;
	uint32_t length, price;
	open_device();
	open_wire(&wire);
	start_line(&line, &wire, flags);
	for (length = PACKET; length <= MLX5_RING_PACKET_INLINE; length++) {
		write_packet(&wire, packet, length, (uint8_t)length);
		await_packet(&line, &wire);
		OK(mlx5_ring_packet_inline(&line.sq, length, packet, length, MLX5_SIGNALED));
		carried(&line, &wire, packet, length);
	}
	write_packet(&wire, wire.memory + SLOT, PACKET, 1);
	entry = slot_of(&wire, 1, PACKET);
	await_packet(&line, &wire);
	OK(mlx5_ring_packet(&line.sq, PACKET, &entry, MLX5_SIGNALED));
	carried(&line, &wire, wire.memory + SLOT, PACKET);
	/* The device fills checksums in. */
	write_packet(&wire, packet, PACKET, 2);
	await_packet(&line, &wire);
	OK(mlx5_ring_packet_inline(&line.sq, PACKET, packet, PACKET, MLX5_SIGNALED | MLX5_CHECKSUMS));
	while (mlx5_ring_cq_peek(&line.receives) == NULL)
		sched_yield();
	CHECK(memcmp(wire.memory + 24, packet + 24, 2) != 0);
	memcpy(packet + 24, wire.memory + 24, 2);
	memcpy(packet + 40, wire.memory + 40, 2);
	carried(&line, &wire, packet, PACKET);
	/* An order whose price is set late. */
	write_packet(&wire, packet, 100, 3);
	OK(mlx5_ring_prepare_packet(&order, packet, 100, MLX5_SIGNALED));
	for (price = 100; price < 300; price++) {
		memcpy(packet + 50, &price, sizeof(price));
		OK(mlx5_ring_prepared_set(&order, 50, &price, sizeof(price)));
		await_packet(&line, &wire);
		OK(mlx5_ring_fire(&line.sq, 100, &order));
		carried(&line, &wire, packet, 100);
	}
	entry.length = 0;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_ring_packet(&line.sq, 0, &entry, 0));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_ring_packet_inline(&line.sq, 0, packet, 0, 0));
	IS(MLX5_STATUS_INLINE_TOO_LONG,
	   mlx5_ring_packet_inline(&line.sq, 0, packet, MLX5_RING_PACKET_INLINE + 1, 0));
	IS(MLX5_STATUS_INLINE_TOO_LONG,
	   mlx5_ring_prepare_packet(&order, packet, MLX5_RING_PACKET_INLINE + 1, 0));
	mlx5_ring_sq_end(&line.sq);
	mlx5_ring_rq_end(&line.rq);
	close_wire(&wire);
	close_device();
}

/* An engine that has the addresses of both queues alone. flags: none are of an engine. */
static void engine(uint32_t flags)
{
	struct end a, b;
	struct mlx5dv_qp qp;
	struct mlx5dv_cq cq;
	struct mlx5dv_obj object;
	struct mlx5_engine_handles handles;
	struct mlx5_engine_queue queue;
	uint32_t round;
	uint64_t counter = 0;
	(void)flags;
	make_pair(&a, &b, IBV_QPT_RC);
	memset(&qp, 0, sizeof(qp));
	memset(&cq, 0, sizeof(cq));
	object.qp.in = a.qp;
	object.qp.out = &qp;
	object.cq.in = a.ibv_cq;
	object.cq.out = &cq;
	CHECK(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) == 0);
	mlx5_engine_handles_init(&handles, &qp, &cq, a.qp->qp_num);
	CHECK(mlx5_engine_queue_init(&queue, &handles) == 0);
	for (round = 1; round <= 300; round++) {
		memcpy(a.memory, &round, sizeof(round));
		mlx5_engine_put_write(&queue, (uintptr_t)a.memory, a.mr->lkey, 4, (uintptr_t)b.memory, b.mr->rkey,
				      MLX5_SIGNALED);
		mlx5_engine_put_add(&queue, (uintptr_t)a.memory + 64, a.mr->lkey, (uintptr_t)b.memory + 64,
				    b.mr->rkey, 3, MLX5_SIGNALED);
		mlx5_engine_ring(&queue);
		while (mlx5_engine_completed(&queue) != 2 * round)
			sched_yield();
		CHECK(memcmp(b.memory, &round, sizeof(round)) == 0);
	}
	memcpy(&counter, b.memory + 64, sizeof(counter));
	CHECK(counter == 900);
	/* The ring is no power of two. */
	handles.ring_bytes -= 64;
	CHECK(mlx5_engine_queue_init(&queue, &handles) == -1);
	destroy_objects(&a);
	destroy_objects(&b);
	close_device();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(uint32_t flags);
	} scenarios[] = {
		{ "inline", inline_lengths }, { "pointers", pointers }, { "prepared", prepared },
		{ "full", full },             { "failure", failure },   { "engine", engine },
		{ "packets", packets },
	};
	unsigned at;
	CHECK(argc == 2);
	for (at = 0; at < sizeof(scenarios) / sizeof(scenarios[0]); at++) {
		if (strcmp(argv[1], scenarios[at].name) == 0) {
			scenarios[at].run(0);
			scenarios[at].run(MLX5_SQ_OWN_REGISTER);
			puts("done");
			return 0;
		}
	}
	fprintf(stderr, "there is no scenario %s\n", argv[1]);
	return 2;
}
