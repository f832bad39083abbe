// Market data: numbered messages in UDP packets to a multicast group, past the kernel.
//
//   feed GROUP PORT [MESSAGES [INTERFACE]]       receives so many, and says which were missing
//   feed -p GROUP PORT [MESSAGES]                publishes them
//
// The receiver tells the network's switches of the group by a socket on the interface. Without one it says so.
// libibverbs makes queues and rules. Posts and polls are this project's. Needs CAP_NET_RAW on a device.
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mlx5.hpp>

namespace {

constexpr unsigned slots = 512, slot_bytes = 2048, headers = 42, message_bytes = 32;

/// Ends an object of libibverbs.
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

void posted(mlx5::status status, const char *call)
{
	if (status != MLX5_STATUS_OK)
		throw mlx5::error(status, call);
}

/// The group and its port, in network byte order.
struct group {
	in_addr address;
	std::uint16_t port;

	/// The Ethernet address of the group: the last 23 bits are those of its address.
	std::array<std::uint8_t, 6> mac() const
	{
		std::array<std::uint8_t, 4> bytes;
		std::memcpy(bytes.data(), &address, bytes.size());
		return { 1, 0, 0x5e, static_cast<std::uint8_t>(bytes[1] & 0x7f), bytes[2], bytes[3] };
	}
};

/// A membership of the kernel's, which ends with this object.
class membership {
public:
	membership(const group &joined, const char *interface) : descriptor_(socket(AF_INET, SOCK_DGRAM, 0))
	{
		done(descriptor_ < 0 ? -1 : 0, "socket");
		ip_mreqn request{};
		request.imr_multiaddr = joined.address;
		request.imr_ifindex = static_cast<int>(if_nametoindex(interface));
		done(request.imr_ifindex == 0 ? -1 : 0, interface);
		done(setsockopt(descriptor_, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof(request)), "joining");
	}
	~membership() { close(descriptor_); }
	membership(const membership &) = delete;
	membership &operator=(const membership &) = delete;

private:
	int descriptor_;
};

/// A queue pair for packets with its objects.
class port {
public:
	explicit port(unsigned bytes)
		: list_(made(ibv_get_device_list(nullptr), "ibv_get_device_list")),
		  context_(made(ibv_open_device(made(list_.get()[0], "there is no RDMA device")), "ibv_open_device")),
		  pd_(made(ibv_alloc_pd(context_.get()), "ibv_alloc_pd")), memory_(bytes),
		  mr_(made(ibv_reg_mr(pd_.get(), memory_.data(), bytes, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr")),
		  sends_(made(ibv_create_cq(context_.get(), slots, nullptr, nullptr, 0), "ibv_create_cq")),
		  receives_(made(ibv_create_cq(context_.get(), slots, nullptr, nullptr, 0), "ibv_create_cq"))
	{
		ibv_qp_init_attr init{};
		init.send_cq = sends_.get();
		init.recv_cq = receives_.get();
		init.qp_type = IBV_QPT_RAW_PACKET;
		init.cap = { 128, slots, 1, 1, 128 };
		qp_.reset(made(ibv_create_qp(pd_.get(), &init), "ibv_create_qp"));
		for (const auto state : { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS }) {
			ibv_qp_attr attr{};
			attr.qp_state = state;
			attr.port_num = 1;
			done(ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0)),
			     "ibv_modify_qp");
		}
	}
	ibv_qp *qp() const { return qp_.get(); }
	ibv_cq *sends() const { return sends_.get(); }
	std::uint8_t *memory() { return memory_.data(); }
	ibv_sge slot(std::uint64_t number) const
	{
		const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
		return { base + number * slot_bytes, slot_bytes, mr_->lkey };
	}

private:
	owned<ibv_device *, ibv_free_device_list> list_;
	owned<ibv_context, ibv_close_device> context_;
	owned<ibv_pd, ibv_dealloc_pd> pd_;
	std::vector<std::uint8_t> memory_;
	owned<ibv_mr, ibv_dereg_mr> mr_;
	owned<ibv_cq, ibv_destroy_cq> sends_, receives_;
	owned<ibv_qp, ibv_destroy_qp> qp_;
};

/// Leads the group's packets to the queue pair.
ibv_flow *rule_for(ibv_qp *qp, const group &wanted)
{
	struct {
		ibv_flow_attr attr;
		ibv_flow_spec_eth ethernet;
		ibv_flow_spec_ipv4 ip;
		ibv_flow_spec_tcp_udp udp;
	} rule{};
	rule.attr.type = IBV_FLOW_ATTR_NORMAL;
	rule.attr.size = sizeof(rule);
	rule.attr.num_of_specs = 3;
	rule.attr.port = 1;
	rule.ethernet.type = IBV_FLOW_SPEC_ETH;
	rule.ethernet.size = sizeof(rule.ethernet);
	std::memcpy(rule.ethernet.val.dst_mac, wanted.mac().data(), 6);
	std::memset(rule.ethernet.mask.dst_mac, 0xff, 6);
	rule.ip.type = IBV_FLOW_SPEC_IPV4;
	rule.ip.size = sizeof(rule.ip);
	rule.ip.val.dst_ip = wanted.address.s_addr;
	rule.ip.mask.dst_ip = 0xffffffff;
	rule.udp.type = IBV_FLOW_SPEC_UDP;
	rule.udp.size = sizeof(rule.udp);
	rule.udp.val.dst_port = wanted.port;
	rule.udp.mask.dst_port = 0xffff;
	return made(ibv_create_flow(qp, &rule.attr), "ibv_create_flow");
}

/// Which messages came, in the order of their numbers.
struct tally {
	std::uint64_t next = 0, missing = 0, faulty = 0;

	void take(const std::uint8_t *bytes, const mlx5::packet &packet)
	{
		constexpr unsigned right = MLX5_PACKET_IPV4 | MLX5_PACKET_UDP | MLX5_PACKET_IP_OK | MLX5_PACKET_L4_OK;
		if (packet.status != IBV_WC_SUCCESS)
			throw std::runtime_error("a receive failed: packets are longer than their slots");
		if ((packet.flags & right) != right || packet.byte_len < headers + sizeof(std::uint64_t)) {
			faulty++;
			return;
		}
		std::uint64_t number;
		std::memcpy(&number, bytes + headers, sizeof(number));
		if (number < next)
			return;
		missing += number - next;
		next = number + 1;
	}
};

int receive(const group &wanted, std::uint64_t messages, const char *interface)
{
	std::unique_ptr<membership> member;
	if (interface != nullptr)
		member = std::make_unique<membership>(wanted, interface);
	port port(slots * slot_bytes);
	mlx5::packets queue(port.qp());
	const auto post = [&](std::uint64_t slot) {
		const ibv_sge memory = port.slot(slot);
		posted(queue.post(mlx5::receive(slot, &memory, 1)), "mlx5_packets_post");
	};
	for (unsigned slot = 0; slot < slots; slot++)
		post(slot);
	const owned<ibv_flow, ibv_destroy_flow> rule(rule_for(port.qp(), wanted));
	std::printf("listening%s\n", member == nullptr ? ", and switches are not told" : "");
	std::fflush(stdout);

	tally tally;
	std::array<mlx5::packet, 32> packets;
	auto last = std::chrono::steady_clock::now();
	while (tally.next < messages) {
		const int count = queue.poll(packets);
		if (count < 0)
			throw mlx5::error(static_cast<mlx5::status>(-count), "mlx5_packets_poll");
		for (int at = 0; at < count; at++) {
			tally.take(port.memory() + packets[at].id * slot_bytes, packets[at]);
			post(packets[at].id);
		}
		const auto now = std::chrono::steady_clock::now();
		if (count > 0)
			last = now;
		else if (now - last > std::chrono::seconds(30))
			throw std::runtime_error("no packet came within 30 s");
	}
	std::printf("%llu messages, %llu missing, %llu with faults\n", static_cast<unsigned long long>(tally.next),
		    static_cast<unsigned long long>(tally.missing), static_cast<unsigned long long>(tally.faulty));
	return 0;
}

/// Ethernet, IPv4 and UDP of a message, without checksums: the device fills them in.
std::array<std::uint8_t, headers + message_bytes> packet_to(const group &wanted)
{
	std::array<std::uint8_t, headers + message_bytes> packet{};
	constexpr unsigned ip = packet.size() - 14, udp = ip - 20;
	std::memcpy(packet.data(), wanted.mac().data(), 6);
	packet[6] = 2; // a local address
	packet[12] = 8;
	packet[14] = 0x45;
	packet[17] = ip;
	packet[22] = 1;
	packet[23] = IPPROTO_UDP;
	std::memcpy(&packet[26], "\xc0\x00\x02\x09", 4);
	std::memcpy(&packet[30], &wanted.address, 4);
	std::memcpy(&packet[34], &wanted.port, 2);
	std::memcpy(&packet[36], &wanted.port, 2);
	packet[39] = udp;
	return packet;
}

int publish(const group &wanted, std::uint64_t messages)
{
	port port(slot_bytes);
	mlx5::cq completions(port.sends());
	mlx5::sq queue(port.qp(), completions);
	auto packet = packet_to(wanted);
	const ibv_sge bytes{ reinterpret_cast<std::uintptr_t>(packet.data()), packet.size(), 0 };
	for (std::uint64_t number = 0; number < messages; number++) {
		std::memcpy(&packet[headers], &number, sizeof(number));
		posted(queue.post(mlx5::request::send(number, &bytes, 1).inlined().with_checksums().signaled()),
		       "mlx5_sq_post");
		mlx5::completion sent;
		int count;
		while ((count = completions.poll(&sent, 1)) == 0)
			;
		if (count < 0)
			throw mlx5::error(static_cast<mlx5::status>(-count), "mlx5_cq_poll");
		if (sent.status != IBV_WC_SUCCESS)
			throw std::runtime_error(mlx5::text(sent));
	}
	std::printf("%llu messages\n", static_cast<unsigned long long>(messages));
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	const bool publishes = argc > 1 && std::strcmp(argv[1], "-p") == 0;
	const std::vector<const char *> words(argv + (publishes ? 2 : 1), argv + argc);
	group wanted{};
	if (words.size() < 2 || words.size() > (publishes ? 3u : 4u) ||
	    inet_pton(AF_INET, words[0], &wanted.address) != 1 || !IN_MULTICAST(ntohl(wanted.address.s_addr))) {
		std::fprintf(stderr, "usage: feed [-p] GROUP PORT [MESSAGES [INTERFACE]]\n");
		return 2;
	}
	wanted.port = htons(static_cast<std::uint16_t>(std::strtoul(words[1], nullptr, 10)));
	const std::uint64_t messages = words.size() > 2 ? std::strtoull(words[2], nullptr, 10) : 1000;
	try {
		return publishes ? publish(wanted, messages) :
				   receive(wanted, messages, words.size() > 3 ? words[3] : nullptr);
	} catch (const std::exception &failure) {
		std::fprintf(stderr, "feed: %s\n", failure.what());
		return 1;
	}
}
