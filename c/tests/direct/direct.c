/* A verbs program that gives its queues to libmlx5direct. Also valid C++17. It runs one scenario. */
#include "addressed.h"
#include "ends.h"
#include "events.h"
#include "failure.h"
#include "keys.h"
#include "misuse.h"
#include "packets.h"
#include "prepared.h"
#include "shared.h"
#include "strides.h"
#include "targets.h"
#include "traffic.h"

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} scenarios[] = {
		{ "rc", rc },         { "uc", uc },         { "ud", ud },
		{ "failure", failure }, { "misuse", misuse }, { "leftovers", leftovers },
		{ "events", events },   { "srq", srq },       { "dc", dc },
		{ "xrc", xrc },         { "packets", packets },     { "keys", keys },
		{ "windows", windows }, { "prepared", prepared }, { "prepared_datagrams", prepared_datagrams },
		{ "prepared_packets", prepared_packets }, { "strides", strides },
		{ "dct", dct },         { "xrc_receives", xrc_receives },
	};
	unsigned at;
	CHECK(argc == 2);
	for (at = 0; at < sizeof(scenarios) / sizeof(scenarios[0]); at++) {
		if (strcmp(argv[1], scenarios[at].name) == 0) {
			scenarios[at].run();
			puts("done");
			return 0;
		}
	}
	fprintf(stderr, "there is no scenario %s\n", argv[1]);
	return 2;
}
