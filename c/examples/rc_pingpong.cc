// Two processes send a message back and forth on a reliable connection, and print the time of a round.
//
//   rc_pingpong [ROUNDS [BYTES [PORT]]]       waits for a peer; port 0 is any that is free
//   rc_pingpong HOST [ROUNDS [BYTES [PORT]]]  connects to it
//
// libibverbs makes and connects the queue pair. Posts and polls are this project's.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mlx5.hpp>

namespace {

/// Ends an object of libibverbs or of the system.
template <auto End> struct ends {
	template <typename T> void operator()(T *object) const { End(object); }
};
template <typename T, auto End> using owned = std::unique_ptr<T, ends<End>>;

template <typename T> T *made(T *object, const char *what)
{
	if (object == nullptr)
		throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
	return object;
}

void done(int failed, const char *what)
{
	if (failed != 0)
		throw std::runtime_error(std::string(what) + ": " + std::strerror(failed > 0 ? failed : errno));
}

/// What each side tells the other.
struct address {
	std::uint32_t qpn;
	std::uint32_t lid;
	ibv_gid gid;
};

/// A TCP connection, for the exchange of addresses.
class connection {
public:
	connection(const char *host, const char *port)
	{
		addrinfo hints{}, *found = nullptr;
		hints.ai_family = AF_INET;
		hints.ai_socktype = SOCK_STREAM;
		hints.ai_flags = host == nullptr ? AI_PASSIVE : 0;
		if (const int failed = getaddrinfo(host, port, &hints, &found); failed != 0)
			throw std::runtime_error(gai_strerror(failed));
		const owned<addrinfo, freeaddrinfo> list(found);
		descriptor_ = socket(AF_INET, SOCK_STREAM, 0);
		done(descriptor_ < 0 ? -1 : 0, "socket");
		if (host != nullptr) {
			done(connect(descriptor_, list->ai_addr, list->ai_addrlen), host);
			return;
		}
		const int yes = 1, listener = descriptor_;
		done(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)), "setsockopt");
		done(bind(listener, list->ai_addr, list->ai_addrlen), "bind");
		done(listen(listener, 1), "listen");
		sockaddr_in bound{};
		socklen_t length = sizeof(bound);
		done(getsockname(listener, reinterpret_cast<sockaddr *>(&bound), &length), "getsockname");
		std::printf("waiting on port %u\n", static_cast<unsigned>(ntohs(bound.sin_port)));
		std::fflush(stdout);
		descriptor_ = accept(listener, nullptr, nullptr);
		close(listener);
		done(descriptor_ < 0 ? -1 : 0, "accept");
	}
	~connection() { close(descriptor_); }
	connection(const connection &) = delete;
	connection &operator=(const connection &) = delete;

	/// Sends a value and returns the peer's.
	template <typename T> T exchange(const T &mine)
	{
		T theirs;
		if (send(descriptor_, &mine, sizeof(mine), 0) != static_cast<ssize_t>(sizeof(mine)) ||
		    recv(descriptor_, &theirs, sizeof(theirs), MSG_WAITALL) != static_cast<ssize_t>(sizeof(theirs)))
			throw std::runtime_error("the peer is gone");
		return theirs;
	}

private:
	int descriptor_;
};

void to_init(ibv_qp *qp)
{
	ibv_qp_attr attr{};
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
}

void to_rts(ibv_qp *qp, const ibv_port_attr &port, const address &peer)
{
	ibv_qp_attr attr{};
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = port.active_mtu;
	attr.dest_qp_num = peer.qpn;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.dlid = static_cast<std::uint16_t>(peer.lid);
	attr.ah_attr.port_num = 1;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = peer.gid;
		attr.ah_attr.grh.hop_limit = 64;
	}
	done(ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	done(ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				   IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

/// Both queues of the connection, their memory, and what is complete.
struct end {
	mlx5::cq cq;
	mlx5::rq rq;
	mlx5::sq sq;
	ibv_sge out, in;
	unsigned sent = 0, received = 0;
};

/// Polls until so many SENDs are complete and so many messages are here.
void wait_for(end &end, unsigned sent, unsigned received)
{
	while (end.sent < sent || end.received < received) {
		mlx5::completion completions[2];
		const int count = end.cq.poll(completions, 2);
		if (count < 0)
			throw mlx5::error(static_cast<mlx5::status>(-count), "mlx5_cq_poll");
		for (int at = 0; at < count; at++) {
			if (completions[at].status != IBV_WC_SUCCESS)
				throw std::runtime_error(mlx5::text(completions[at]));
			++(completions[at].operation == MLX5_OP_RECEIVE ? end.received : end.sent);
		}
	}
}

void posted(mlx5::status status, const char *call)
{
	if (status != MLX5_STATUS_OK)
		throw mlx5::error(status, call);
}

/// The client sends first, and the server answers. Each posts its next receive before it sends.
void play(end &end, bool client, unsigned rounds)
{
	const mlx5::request ball = mlx5::request::send(0, &end.out, 1).signaled();
	const mlx5::receive next(0, &end.in, 1);
	for (unsigned round = 1; round <= rounds; round++) {
		if (!client) {
			wait_for(end, 0, round);
			posted(end.rq.post(next), "mlx5_rq_post");
		}
		posted(end.sq.post(ball), "mlx5_sq_post");
		if (client) {
			wait_for(end, 0, round);
			posted(end.rq.post(next), "mlx5_rq_post");
		}
		wait_for(end, round, 0);
	}
}

int run(const char *host, unsigned rounds, unsigned bytes, const char *port_name)
{
	const owned<ibv_device *, ibv_free_device_list> list(made(ibv_get_device_list(nullptr), "ibv_get_device_list"));
	const owned<ibv_context, ibv_close_device> context(
		made(ibv_open_device(made(list.get()[0], "there is no RDMA device")), "ibv_open_device"));
	const owned<ibv_pd, ibv_dealloc_pd> pd(made(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
	std::vector<char> memory(2 * bytes, host == nullptr ? 's' : 'c');
	const owned<ibv_mr, ibv_dereg_mr> mr(
		made(ibv_reg_mr(pd.get(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr"));
	const owned<ibv_cq, ibv_destroy_cq> cq(
		made(ibv_create_cq(context.get(), 64, nullptr, nullptr, 0), "ibv_create_cq"));
	ibv_qp_init_attr init{};
	init.send_cq = init.recv_cq = cq.get();
	init.qp_type = IBV_QPT_RC;
	init.cap = { 8, 8, 1, 1, 0 };
	const owned<ibv_qp, ibv_destroy_qp> qp(made(ibv_create_qp(pd.get(), &init), "ibv_create_qp"));
	to_init(qp.get());

	ibv_port_attr port{};
	done(ibv_query_port(context.get(), 1, &port), "ibv_query_port");
	address mine{ qp->qp_num, port.lid, {} };
	done(ibv_query_gid(context.get(), 1, 0, &mine.gid), "ibv_query_gid");
	connection peer(host, port_name);
	to_rts(qp.get(), port, peer.exchange(mine));

	const auto base = reinterpret_cast<std::uintptr_t>(memory.data());
	mlx5::cq completions(cq.get());
	mlx5::rq receives(qp.get(), completions);
	mlx5::sq sends(qp.get(), completions);
	end queues{ std::move(completions), std::move(receives), std::move(sends),
		     { base, bytes, mr->lkey }, { base + bytes, bytes, mr->lkey } };
	posted(queues.rq.post(mlx5::receive(0, &queues.in, 1)), "mlx5_rq_post");
	peer.exchange('r'); // Both have a receive.
	const auto start = std::chrono::steady_clock::now();
	play(queues, host != nullptr, rounds);
	const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
	peer.exchange('d'); // Both are done.
	if (memory[bytes] != (host == nullptr ? 'c' : 's'))
		throw std::runtime_error("the peer's message is another");
	std::printf("%u rounds of %u bytes, %.2f us each\n", rounds, bytes, time.count() / rounds);
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	// A first argument that is no number is the peer.
	const bool client = argc > 1 && argv[1][std::strspn(argv[1], "0123456789")] != '\0';
	char **rest = argv + (client ? 2 : 1);
	const int count = static_cast<int>(argv + argc - rest);
	const unsigned rounds = count > 0 ? static_cast<unsigned>(std::strtoul(rest[0], nullptr, 10)) : 1000;
	const unsigned bytes = count > 1 ? static_cast<unsigned>(std::strtoul(rest[1], nullptr, 10)) : 4096;
	if (rounds == 0 || bytes == 0 || bytes > 1u << 20 || count > 3) {
		std::fprintf(stderr, "usage: rc_pingpong [HOST] [ROUNDS [BYTES [PORT]]]\n");
		return 2;
	}
	try {
		return run(client ? argv[1] : nullptr, rounds, bytes, count > 2 ? rest[2] : "18515");
	} catch (const std::exception &failure) {
		std::fprintf(stderr, "rc_pingpong: %s\n", failure.what());
		return 1;
	}
}
