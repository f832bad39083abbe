// SPDX-License-Identifier: MIT OR Apache-2.0
//
// libmlx5direct for C++17: mlx5.h with handles that end themselves.
//
// Constructors take queues over and throw mlx5::error. Calls on the data path return what mlx5.h returns, throw nothing,
// and cost what the C functions cost: each is one call.
//
// A queue ends before its completion queue: declare the cq first. What mlx5.h says of threads, of memory and of
// conditions of the take-over holds here too.
#ifndef MLX5_HPP
#define MLX5_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#if __cplusplus >= 202002L && __has_include(<span>)
#include <span>
#endif

#include "mlx5.h"

namespace mlx5 {

using status = mlx5_status;
using completion = mlx5_completion;
using packet = mlx5_packet;

/// A failed call outside the data path. what() has cause and cure.
class error : public std::runtime_error {
public:
	error(status code, const char *call)
		: std::runtime_error(std::string(call) + ": " + mlx5_last_error()), code_(code)
	{
	}
	status code() const noexcept { return code_; }

private:
	status code_;
};

namespace detail {

inline void check(status code, const char *call)
{
	if (code != MLX5_STATUS_OK)
		throw error(code, call);
}

/// Owns a handle of C, which End ends whatever state it is in.
template <typename Handle, void (*End)(Handle *)> class owner {
public:
	owner() noexcept = default;
	owner(owner &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
	owner &operator=(owner &&other) noexcept
	{
		if (this != &other) {
			End(handle_);
			handle_ = std::exchange(other.handle_, nullptr);
		}
		return *this;
	}
	owner(const owner &) = delete;
	owner &operator=(const owner &) = delete;
	~owner() { End(handle_); }

	/// The handle for functions of C. It stays this object's.
	Handle *get() const noexcept { return handle_; }

protected:
	Handle *handle_ = nullptr;
};

/// Milliseconds for mlx5_cq_wait, rounded up. Longer than an int holds: the longest.
template <typename Rep, typename Period>
int milliseconds(std::chrono::duration<Rep, Period> time) noexcept
{
	using milli = std::chrono::duration<double, std::milli>;
	const double most = std::numeric_limits<int>::max();
	const double count = std::chrono::duration_cast<milli>(time).count();
	if (!(count > 0))
		return 0;
	if (count >= most)
		return std::numeric_limits<int>::max();
	const int whole = static_cast<int>(count);
	return static_cast<double>(whole) < count ? whole + 1 : whole;
}

} // namespace detail

/// A completion queue of libibverbs that is taken over.
class cq : public detail::owner<mlx5_cq, mlx5_cq_abandon> {
public:
	/// flags: MLX5_CQ_UNPOLLED. Throws error.
	explicit cq(ibv_cq *raw, std::uint32_t flags = 0)
	{
		detail::check(mlx5_cq_take(raw, flags, &handle_), "mlx5_cq_take");
	}
	/// Gives it back and ends the handle. Throws error, and the handle goes on.
	void give_back()
	{
		detail::check(mlx5_cq_give_back(handle_), "mlx5_cq_give_back");
		handle_ = nullptr;
	}
	/// Returns how many completions were written; negative: an mlx5_status without its sign.
	[[nodiscard]] int poll(completion *into, std::uint32_t capacity) noexcept
	{
		return mlx5_cq_poll(handle_, into, capacity);
	}
	/// Also writes when the device wrote each.
	[[nodiscard]] int poll(completion *into, std::uint64_t *times, std::uint32_t capacity) noexcept
	{
		return mlx5_cq_poll_timed(handle_, into, times, capacity);
	}
	template <std::size_t Count> [[nodiscard]] int poll(std::array<completion, Count> &into) noexcept
	{
		return mlx5_cq_poll(handle_, into.data(), static_cast<std::uint32_t>(Count));
	}
#ifdef __cpp_lib_span
	[[nodiscard]] int poll(std::span<completion> into) noexcept
	{
		constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
		const std::size_t count = into.size() < most ? into.size() : most;
		return mlx5_cq_poll(handle_, into.data(), static_cast<std::uint32_t>(count));
	}
#endif
	[[nodiscard]] status arm() noexcept { return mlx5_cq_arm(handle_, 0); }
	[[nodiscard]] status arm_solicited() noexcept { return mlx5_cq_arm(handle_, 1); }
	/// Waits for ever.
	[[nodiscard]] status wait() noexcept { return mlx5_cq_wait(handle_, -1); }
	template <typename Rep, typename Period>
	[[nodiscard]] status wait(std::chrono::duration<Rep, Period> timeout) noexcept
	{
		return mlx5_cq_wait(handle_, detail::milliseconds(timeout));
	}
	status event_taken() noexcept { return mlx5_cq_event_taken(handle_); }
	int fd() const noexcept { return mlx5_cq_fd(handle_); }
	ibv_cq *ibv() const noexcept { return mlx5_cq_ibv(handle_); }
};

/// The destination of requests. Each function throws error.
class address : public mlx5_address {
public:
	/// A queue pair for datagrams.
	static address datagram(ibv_ah *ah, std::uint32_t qpn, std::uint32_t qkey)
	{
		address made;
		detail::check(mlx5_address_init(&made, ah, qpn, qkey), "mlx5_address_init");
		return made;
	}
	/// A target of dynamic connections.
	static address dc(ibv_ah *ah, std::uint32_t dctn, std::uint64_t access_key)
	{
		address made;
		detail::check(mlx5_address_init_dc(&made, ah, dctn, access_key), "mlx5_address_init_dc");
		return made;
	}
	/// A shared receive queue of the peer's XRC domain.
	static address xrc(std::uint32_t srqn)
	{
		address made;
		detail::check(mlx5_address_init_xrc(&made, srqn), "mlx5_address_init_xrc");
		return made;
	}

private:
	address() noexcept : mlx5_address() {}
};

/// A request of a send queue. It refers to its list and address, which live until it is posted.
class request : public mlx5_request {
public:
	request() noexcept : mlx5_request() {}

	static request send(std::uint64_t id, const ibv_sge *list, std::uint32_t count) noexcept
	{
		return request(MLX5_OP_SEND, id, list, count);
	}
	static request write(std::uint64_t id, const ibv_sge *list, std::uint32_t count, std::uint64_t remote_addr,
			     std::uint32_t rkey) noexcept
	{
		return request(MLX5_OP_WRITE, id, list, count).at(remote_addr, rkey);
	}
	static request read(std::uint64_t id, const ibv_sge *list, std::uint32_t count, std::uint64_t remote_addr,
			    std::uint32_t rkey) noexcept
	{
		return request(MLX5_OP_READ, id, list, count).at(remote_addr, rkey);
	}
	/// old: one entry of 8 bytes.
	static request compare_swap(std::uint64_t id, const ibv_sge *old, std::uint64_t remote_addr,
				    std::uint32_t rkey, std::uint64_t compare, std::uint64_t swap) noexcept
	{
		request made = request(MLX5_OP_COMPARE_SWAP, id, old, 1).at(remote_addr, rkey);
		made.compare_add = compare;
		made.swap = swap;
		return made;
	}
	static request fetch_add(std::uint64_t id, const ibv_sge *old, std::uint64_t remote_addr,
				 std::uint32_t rkey, std::uint64_t add) noexcept
	{
		request made = request(MLX5_OP_FETCH_ADD, id, old, 1).at(remote_addr, rkey);
		made.compare_add = add;
		return made;
	}
	static request masked_compare_swap(std::uint64_t id, const ibv_sge *old, std::uint64_t remote_addr,
					   std::uint32_t rkey, std::uint64_t compare, std::uint64_t compare_mask,
					   std::uint64_t swap, std::uint64_t swap_mask) noexcept
	{
		request made = compare_swap(id, old, remote_addr, rkey, compare, swap);
		made.operation = MLX5_OP_MASKED_COMPARE_SWAP;
		made.compare_mask = compare_mask;
		made.swap_mask = swap_mask;
		return made;
	}
	/// ends: the most significant bit of each field.
	static request masked_fetch_add(std::uint64_t id, const ibv_sge *old, std::uint64_t remote_addr,
					std::uint32_t rkey, std::uint64_t add, std::uint64_t ends) noexcept
	{
		request made = fetch_add(id, old, remote_addr, rkey, add);
		made.operation = MLX5_OP_MASKED_FETCH_ADD;
		made.swap_mask = ends;
		return made;
	}
	/// A SEND that also invalidates the peer's key.
	static request send_invalidate(std::uint64_t id, const ibv_sge *list, std::uint32_t count,
				       std::uint32_t rkey) noexcept
	{
		return request(MLX5_OP_SEND_INVALIDATE, id, list, count).at(0, rkey);
	}
	static request local_invalidate(std::uint64_t id, std::uint32_t rkey) noexcept
	{
		return request(MLX5_OP_LOCAL_INVALIDATE, id, nullptr, 0).at(0, rkey);
	}
	/// Binds a window of type 1 to memory of a region, or to none (null). Its key is then ibv_inc_rkey(rkey).
	static request bind_type_1(std::uint64_t id, std::uint32_t rkey, const ibv_sge *memory,
				   std::uint64_t access) noexcept
	{
		request made = request(MLX5_OP_BIND_WINDOW, id, memory, memory != nullptr ? 1 : 0).at(0, rkey);
		made.immediate = (rkey & ~0xffu) | ((rkey + 1) & 0xff);
		made.access = access;
		return made;
	}
	/// Binds a window of type 2, whose key is then next.
	static request bind_type_2(std::uint64_t id, std::uint32_t rkey, std::uint32_t next, const ibv_sge *memory,
				   std::uint64_t access) noexcept
	{
		request made = bind_type_1(id, rkey, memory, access).with(MLX5_TYPE_2);
		made.immediate = next;
		return made;
	}
	/// Binds: addresses behind the window start at 0.
	request zero_based() const noexcept { return with(MLX5_ZERO_BASED); }
	static request configure_key(std::uint64_t id, std::uint32_t lkey, const ibv_sge *list, std::uint32_t count,
				     std::uint64_t access) noexcept
	{
		request made = request(MLX5_OP_CONFIGURE_KEY, id, list, count).at(0, lkey);
		made.access = access;
		return made;
	}
	/// So many cycles of the pieces of a list, whose lengths are MLX5_PIECE(bytes, skip).
	static request configure_interleaved(std::uint64_t id, std::uint32_t lkey, const ibv_sge *pieces,
					     std::uint32_t count, std::uint32_t cycles, std::uint64_t access) noexcept
	{
		request made = configure_key(id, lkey, pieces, count, access).with(MLX5_INTERLEAVED);
		made.immediate = cycles;
		return made;
	}
	/// A list of pieces in memory, of length bytes together. The device reads it until the request is complete.
	static request configure_listed(std::uint64_t id, std::uint32_t lkey, const ibv_sge *memory, std::uint64_t length,
					std::uint64_t access) noexcept
	{
		request made = configure_key(id, lkey, memory, 1, access).with(MLX5_LIST_IN_MEMORY);
		made.key_length = length;
		return made;
	}
	/// Packets: those behind it wait. mask: of mlx5_time_mask().
	static request wait_until(std::uint64_t id, std::uint64_t time, std::uint64_t mask) noexcept
	{
		request made = request(MLX5_OP_WAIT_UNTIL, id, nullptr, 0);
		made.time = time;
		made.time_mask = mask;
		return made;
	}
	/// Packets: TSO. The first entry is the header; bytes: of payload in a packet.
	static request large_send(std::uint64_t id, const ibv_sge *list, std::uint32_t count,
				  std::uint16_t bytes) noexcept
	{
		request made = request(MLX5_OP_LARGE_SEND, id, list, count);
		made.immediate = bytes;
		return made;
	}
	/// Packets: each entry is one.
	static request multi_packet(std::uint64_t id, const ibv_sge *list, std::uint32_t count) noexcept
	{
		return request(MLX5_OP_MULTI_PACKET, id, list, count);
	}
	static request nop(std::uint64_t id) noexcept { return request(MLX5_OP_NOP, id, nullptr, 0); }

	request signaled() const noexcept { return with(MLX5_SIGNALED); }
	request fenced() const noexcept { return with(MLX5_FENCED); }
	request solicited() const noexcept { return with(MLX5_SOLICITED); }
	/// The bytes at the addresses of the list are copied into the WQE during the call.
	request inlined() const noexcept { return with(MLX5_INLINE); }
	/// Packets: the device fills the checksums in.
	request with_checksums() const noexcept { return with(MLX5_CHECKSUMS); }
	/// Packets: the first entry of the list is copied into the WQE.
	request with_header_inlined() const noexcept { return with(MLX5_INLINE_HEADER); }
	/// Packets: the device inserts this VLAN tag.
	request with_vlan(std::uint16_t tag) const noexcept
	{
		request made = with(MLX5_VLAN);
		made.immediate = tag;
		return made;
	}
	/// SEND and WRITE: with immediate data, in host byte order.
	request with_immediate(std::uint32_t value) const noexcept
	{
		request made = *this;
		if (made.operation == MLX5_OP_SEND)
			made.operation = MLX5_OP_SEND_IMM;
		else if (made.operation == MLX5_OP_WRITE)
			made.operation = MLX5_OP_WRITE_IMM;
		made.immediate = value;
		return made;
	}
	/// UD, DC, XRC: the destination.
	request to(const mlx5_address &destination) const noexcept
	{
		request made = *this;
		made.address = &destination;
		return made;
	}

private:
	request(mlx5_operation what, std::uint64_t with_id, const ibv_sge *list, std::uint32_t count) noexcept
		: mlx5_request()
	{
		id = with_id;
		operation = what;
		sg_list = list;
		num_sge = count;
	}
	request at(std::uint64_t peer, std::uint32_t key) const noexcept
	{
		request made = *this;
		made.remote_addr = peer;
		made.rkey = key;
		return made;
	}
	request with(std::uint32_t flag) const noexcept
	{
		request made = *this;
		made.flags |= flag;
		return made;
	}
};
static_assert(sizeof(request) == sizeof(mlx5_request), "arrays of it are arrays of C");

/// A receive.
class receive : public mlx5_receive {
public:
	receive(std::uint64_t with_id, const ibv_sge *list, std::uint32_t count) noexcept : mlx5_receive()
	{
		id = with_id;
		sg_list = list;
		num_sge = count;
	}
};
static_assert(sizeof(receive) == sizeof(mlx5_receive), "arrays of it are arrays of C");

/// The send queue of a queue pair that is taken over.
class sq : public detail::owner<mlx5_sq, mlx5_sq_abandon> {
public:
	/// requests: how many may be outstanding; 0: as many as the queue holds. flags: MLX5_SQ_OWN_REGISTER. Throws error.
	sq(ibv_qp *qp, cq &completions, std::uint32_t requests = 0, std::uint32_t flags = 0)
	{
		detail::check(mlx5_sq_take(qp, completions.get(), requests, flags, &handle_), "mlx5_sq_take");
	}
	/// Gives it back and ends the handle. Throws error, and the handle goes on.
	void give_back()
	{
		detail::check(mlx5_sq_give_back(handle_), "mlx5_sq_give_back");
		handle_ = nullptr;
	}
	[[nodiscard]] status post(const mlx5_request &one) noexcept { return mlx5_sq_post(handle_, &one, 1, nullptr); }
	/// posted, if not null, gets how many were.
	[[nodiscard]] status post(const mlx5_request *requests, std::uint32_t count,
				  std::uint32_t *posted = nullptr) noexcept
	{
		return mlx5_sq_post(handle_, requests, count, posted);
	}
	status recover() noexcept { return mlx5_sq_recover(handle_); }
	std::uint32_t capacity() const noexcept { return mlx5_sq_capacity(handle_); }
	ibv_qp *ibv() const noexcept { return mlx5_sq_ibv(handle_); }
};

/// Requests of one queue that are posted with one doorbell. What is not rung when it ends is discarded.
class batch {
public:
	explicit batch(sq &queue) noexcept : queue_(queue.get()), begun_(mlx5_sq_begin(queue_)) {}
	batch(const batch &) = delete;
	batch &operator=(const batch &) = delete;
	~batch()
	{
		if (begun_ == MLX5_STATUS_OK)
			mlx5_sq_discard(queue_);
	}
	/// Why no batch was begun.
	status begun() const noexcept { return begun_; }
	[[nodiscard]] status append(const mlx5_request &one) noexcept { return mlx5_sq_append(queue_, &one); }
	/// Posts all, and ends the batch.
	[[nodiscard]] status ring() noexcept
	{
		begun_ = MLX5_STATUS_NO_BATCH;
		return mlx5_sq_ring(queue_);
	}

private:
	mlx5_sq *queue_;
	status begun_;
};

/// Other bytes for a part of the payload of a prepared request. It refers to them, and they live until it is fired.
class change : public mlx5_change {
public:
	change() noexcept : mlx5_change() {}
	change(std::uint32_t at, const void *with, std::uint32_t count) noexcept : mlx5_change()
	{
		bytes = with;
		offset = at;
		length = count;
	}
	/// The bytes of a value, as they lie in memory.
	template <typename Value>
	static change to(std::uint32_t at, const Value &value) noexcept
	{
		static_assert(std::is_trivially_copyable<Value>::value, "its bytes are the value");
		return change(at, &value, static_cast<std::uint32_t>(sizeof(value)));
	}
	template <typename Value> static change to(std::uint32_t at, const Value &&value) = delete;
};
static_assert(sizeof(change) == sizeof(mlx5_change), "arrays of it are arrays of C");

/// Requests of one queue that are written ahead, and posted one by one. Those that are not fired when it ends are
/// forgotten. It ends before the queue.
class prepared {
public:
	explicit prepared(sq &queue) noexcept : queue_(queue.get()) {}
	prepared(const prepared &) = delete;
	prepared &operator=(const prepared &) = delete;
	~prepared() { mlx5_sq_cancel(queue_); }
	[[nodiscard]] status prepare(const mlx5_request &one) noexcept { return mlx5_sq_prepare(queue_, &one); }
	/// Posts the oldest as it was prepared.
	[[nodiscard]] status fire() noexcept { return mlx5_sq_fire(queue_, nullptr, 0); }
	/// Posts the oldest with this change.
	[[nodiscard]] status fire(const mlx5_change &one) noexcept { return mlx5_sq_fire(queue_, &one, 1); }
	template <std::size_t Count>
	[[nodiscard]] status fire(const std::array<change, Count> &changes) noexcept
	{
		return mlx5_sq_fire(queue_, changes.data(), static_cast<std::uint32_t>(Count));
	}
	status cancel() noexcept { return mlx5_sq_cancel(queue_); }
	status warm() noexcept { return mlx5_sq_warm(queue_); }
	std::uint32_t count() const noexcept { return mlx5_sq_prepared(queue_); }

private:
	mlx5_sq *queue_;
};

/// The receive queue that a queue pair has of its own, taken over.
class rq : public detail::owner<mlx5_rq, mlx5_rq_abandon> {
public:
	/// receives: how many may be outstanding; 0: as many as the queue holds. Throws error.
	rq(ibv_qp *qp, cq &completions, std::uint32_t receives = 0)
	{
		detail::check(mlx5_rq_take(qp, completions.get(), receives, &handle_), "mlx5_rq_take");
	}
	/// Gives it back and ends the handle. Throws error, and the handle goes on.
	void give_back()
	{
		detail::check(mlx5_rq_give_back(handle_), "mlx5_rq_give_back");
		handle_ = nullptr;
	}
	[[nodiscard]] status post(const mlx5_receive &one) noexcept { return mlx5_rq_post(handle_, &one, 1, nullptr); }
	/// posted, if not null, gets how many were.
	[[nodiscard]] status post(const mlx5_receive *receives, std::uint32_t count,
				  std::uint32_t *posted = nullptr) noexcept
	{
		return mlx5_rq_post(handle_, receives, count, posted);
	}
	std::uint32_t capacity() const noexcept { return mlx5_rq_capacity(handle_); }
	ibv_qp *ibv() const noexcept { return mlx5_rq_ibv(handle_); }
};

/// Chooses the constructor for a shared receive queue of IBV_SRQT_XRC.
struct of_xrc {};

/// A shared receive queue that is taken over.
class srq : public detail::owner<mlx5_srq, mlx5_srq_abandon> {
public:
	/// receives: how many may be outstanding; 0: as many as the queue holds. Throws error.
	srq(ibv_srq *raw, cq &completions, std::uint32_t receives = 0)
	{
		detail::check(mlx5_srq_take(raw, completions.get(), receives, &handle_), "mlx5_srq_take");
	}
	/// One of XRC, to which nothing is attached. Throws error.
	srq(of_xrc, ibv_srq *raw, cq &completions, std::uint32_t receives = 0)
	{
		detail::check(mlx5_srq_take_xrc(raw, completions.get(), receives, &handle_), "mlx5_srq_take_xrc");
	}
	/// Throws error.
	void attach(ibv_qp *qp) { detail::check(mlx5_srq_attach(handle_, qp), "mlx5_srq_attach"); }
	/// Throws error.
	void detach(ibv_qp *qp) { detail::check(mlx5_srq_detach(handle_, qp), "mlx5_srq_detach"); }
	/// Writes ids of receives whose completions a detach has dropped, and returns how many.
	std::uint32_t reclaimed(std::uint64_t *ids, std::uint32_t most) noexcept
	{
		return mlx5_srq_reclaimed(handle_, ids, most);
	}
	[[nodiscard]] status post(const mlx5_receive &one) noexcept { return mlx5_srq_post(handle_, &one, 1, nullptr); }
	/// posted, if not null, gets how many were.
	[[nodiscard]] status post(const mlx5_receive *receives, std::uint32_t count,
				  std::uint32_t *posted = nullptr) noexcept
	{
		return mlx5_srq_post(handle_, receives, count, posted);
	}
	std::uint32_t capacity() const noexcept { return mlx5_srq_capacity(handle_); }
	ibv_srq *ibv() const noexcept { return mlx5_srq_ibv(handle_); }
};

/// A receive queue for Ethernet packets, of a queue pair or a striding one, taken over with its completion queue.
class packets : public detail::owner<mlx5_packets, mlx5_packets_abandon> {
public:
	/// receives: how many may be outstanding; 0: as many as the queue holds. Throws error.
	explicit packets(ibv_qp *qp, std::uint32_t receives = 0)
	{
		detail::check(mlx5_packets_take(qp, receives, &handle_), "mlx5_packets_take");
	}
	/// A striding receive queue, and the attributes that it was made with. Throws error.
	packets(ibv_wq *wq, const mlx5dv_striding_rq_init_attr &attributes)
	{
		detail::check(mlx5_packets_take_striding(wq, &attributes, &handle_), "mlx5_packets_take_striding");
	}
	[[nodiscard]] status post(const mlx5_receive &one) noexcept
	{
		return mlx5_packets_post(handle_, &one, 1, nullptr);
	}
	/// posted, if not null, gets how many were.
	[[nodiscard]] status post(const mlx5_receive *receives, std::uint32_t count,
				  std::uint32_t *posted = nullptr) noexcept
	{
		return mlx5_packets_post(handle_, receives, count, posted);
	}
	/// Returns how many packets were written; negative: an mlx5_status without its sign.
	[[nodiscard]] int poll(packet *into, std::uint32_t capacity) noexcept
	{
		return mlx5_packets_poll(handle_, into, capacity);
	}
	template <std::size_t Count> [[nodiscard]] int poll(std::array<packet, Count> &into) noexcept
	{
		return mlx5_packets_poll(handle_, into.data(), static_cast<std::uint32_t>(Count));
	}
	[[nodiscard]] status arm() noexcept { return mlx5_packets_arm(handle_); }
	/// Waits for ever.
	[[nodiscard]] status wait() noexcept { return mlx5_packets_wait(handle_, -1); }
	template <typename Rep, typename Period>
	[[nodiscard]] status wait(std::chrono::duration<Rep, Period> timeout) noexcept
	{
		return mlx5_packets_wait(handle_, detail::milliseconds(timeout));
	}
	status event_taken() noexcept { return mlx5_packets_event_taken(handle_); }
	int fd() const noexcept { return mlx5_packets_fd(handle_); }
	std::uint32_t capacity() const noexcept { return mlx5_packets_capacity(handle_); }
	ibv_qp *ibv() const noexcept { return mlx5_packets_ibv(handle_); }
};

/// What happened, and for a failure its causes and cure. Throws std::bad_alloc.
inline std::string text(const completion &done)
{
	const int length = mlx5_completion_text(&done, nullptr, 0);
	if (length <= 0)
		return std::string();
	std::string made(static_cast<std::size_t>(length) + 1, '\0');
	mlx5_completion_text(&done, made.data(), made.size());
	made.pop_back();
	return made;
}

} // namespace mlx5

#endif
