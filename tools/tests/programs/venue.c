/* The other side of the examples `feed`, `order_entry` and `tcp_order`, on the kernel's own sockets:
 *
 *   venue feed ADDRESS GROUP_A GROUP_B PORT   publishes 5,000 numbered messages in two groups
 *   venue ticks ADDRESS GROUP PORT ORDERS     publishes 1,000 ticks, each when the last one's order has
 *                                             come to the port ORDERS
 *   venue lines PORT                          sends each line of one connection back
 *
 * ADDRESS is the interface's own. */
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define MESSAGES 5000
#define TICKS 1000

/* An order or a tick: number, price, quantity, in network order. */
struct message {
	uint64_t number, price, quantity;
};

static void fail(const char *call)
{
	perror(call);
	exit(1);
}

static struct sockaddr_in address(const char *ip, const char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	if (inet_pton(AF_INET, ip, &address.sin_addr) != 1) {
		fprintf(stderr, "%s is no address of IPv4\n", ip);
		exit(1);
	}
	return address;
}

static int bound(int type, struct sockaddr_in to)
{
	struct timeval patience = { .tv_sec = 30 };
	int socket_of = socket(AF_INET, type, 0), reuse = 1;

	if (socket_of < 0 || setsockopt(socket_of, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) ||
	    setsockopt(socket_of, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)))
		fail("socket");
	if (bind(socket_of, (struct sockaddr *)&to, sizeof(to)))
		fail("bind");
	return socket_of;
}

/* A socket that sends to groups by the interface with this address. */
static int publisher(const char *ip)
{
	struct sockaddr_in own = address(ip, "0");
	int out = bound(SOCK_DGRAM, own);

	if (setsockopt(out, IPPROTO_IP, IP_MULTICAST_IF, &own.sin_addr, sizeof(own.sin_addr)))
		fail("IP_MULTICAST_IF");
	return out;
}

static void publish(int out, struct sockaddr_in group, uint64_t number, uint64_t price)
{
	struct message message = { htobe64(number), htobe64(price), htobe64(100) };

	if (sendto(out, &message, sizeof(message), 0, (struct sockaddr *)&group, sizeof(group)) !=
	    sizeof(message))
		fail("sendto");
}

static void feed(char **arguments)
{
	int out = publisher(arguments[0]);
	struct sockaddr_in groups[2] = { address(arguments[1], arguments[3]),
					 address(arguments[2], arguments[3]) };

	for (uint64_t number = 0; number < MESSAGES; number++) {
		/* Two are in neither stream, and each stream leaves some out. */
		if (number == 4000 || number == 4001)
			continue;
		if (number % 100 != 17)
			publish(out, groups[0], number, 0);
		if (number % 100 != 71)
			publish(out, groups[1], number, 0);
	}
	publish(out, groups[0], UINT64_MAX, 0);
	publish(out, groups[1], UINT64_MAX, 0);
	printf("%d messages\n", MESSAGES);
}

static void ticks(char **arguments)
{
	int out = publisher(arguments[0]), in = bound(SOCK_DGRAM, address(arguments[0], arguments[3]));
	struct sockaddr_in group = address(arguments[1], arguments[2]);

	for (uint64_t number = 0; number < TICKS; number++) {
		uint64_t price = 10000 + number * 7919 % 500;
		struct message order;

		publish(out, group, number, price);
		if (recv(in, &order, sizeof(order), 0) != sizeof(order))
			fail("no order came");
		if (be64toh(order.number) != number || be64toh(order.price) != price) {
			fprintf(stderr, "tick %llu at %llu was answered by order %llu at %llu\n",
				(unsigned long long)number, (unsigned long long)price,
				(unsigned long long)be64toh(order.number),
				(unsigned long long)be64toh(order.price));
			exit(1);
		}
	}
	printf("%d ticks, each answered by its order\n", TICKS);
}

static void lines(char **arguments)
{
	int listening = bound(SOCK_STREAM, address("0.0.0.0", arguments[0])), peer;
	unsigned long bytes = 0;
	char buffer[4096];
	ssize_t got;

	if (listen(listening, 1) || (peer = accept(listening, NULL, NULL)) < 0)
		fail("accept");
	while ((got = recv(peer, buffer, sizeof(buffer), 0)) > 0) {
		for (ssize_t sent = 0, more; sent < got; sent += more)
			if ((more = send(peer, buffer + sent, got - sent, 0)) < 0)
				fail("send");
		bytes += got;
	}
	if (got < 0)
		fail("recv");
	printf("%lu bytes of lines\n", bytes);
}

int main(int count, char **arguments)
{
	const char *mode = count > 1 ? arguments[1] : "";

	if (!strcmp(mode, "feed") && count == 6)
		feed(arguments + 2);
	else if (!strcmp(mode, "ticks") && count == 6)
		ticks(arguments + 2);
	else if (!strcmp(mode, "lines") && count == 3)
		lines(arguments + 2);
	else {
		fprintf(stderr, "venue feed ADDRESS GROUP_A GROUP_B PORT | ticks ADDRESS GROUP PORT ORDERS | lines PORT\n");
		return 1;
	}
	return 0;
}
