/*
 * Atomics that fetch, by UCX's own calls, on a word of this process: prints what was found and what
 * is there afterwards, of each size and operation. UCX's library comes without its headers where
 * only programs are installed, so what is used of its interface is declared here. Its structures
 * begin with a mask of the fields that are set, and the library reads no others.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct params { uint64_t mask, features; };
struct worker_params { uint64_t mask; int thread_mode; };
struct ep_params { uint64_t mask; const void *address; };
struct map_params { uint64_t mask; void *address; size_t length; };
struct request_params {
    uint32_t mask, flags;
    void *request;
    void *callback;
    uint64_t datatype;
    void *user_data;
    void *reply;
};

int ucp_init_version(unsigned, unsigned, const struct params *, const void *, void **);
int ucp_worker_create(void *, const struct worker_params *, void **);
int ucp_worker_get_address(void *, void **, size_t *);
int ucp_ep_create(void *, const struct ep_params *, void **);
int ucp_mem_map(void *, const struct map_params *, void **);
int ucp_rkey_pack(void *, void *, void **, size_t *);
int ucp_ep_rkey_unpack(void *, const void *, void **);
void *ucp_atomic_op_nbx(void *, int, const void *, size_t, uint64_t, void *,
                        const struct request_params *);
unsigned ucp_worker_progress(void *);
int ucp_request_check_status(void *);

enum { FEATURE_AMO32 = 1 << 2, FEATURE_AMO64 = 1 << 3, ADD = 0, SWAP_IF_EQUAL = 2 };
enum { FIELD_DATATYPE = 1 << 3, FIELD_REPLY = 1 << 5, IN_PROGRESS = 1 };

static void done(int status, const char *call)
{
    if (status != 0) {
        fprintf(stderr, "%s: ERROR %d\n", call, status);
        exit(1);
    }
}

int main(void)
{
    static uint64_t memory[512] __attribute__((aligned(4096)));
    void *context, *worker, *address, *ep, *region, *packed, *rkey;
    size_t length;

    struct params params = { 1, FEATURE_AMO32 | FEATURE_AMO64 };
    done(ucp_init_version(1, 10, &params, NULL, &context), "ucp_init");
    struct worker_params worker_params = { 1, 0 };
    done(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
    done(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
    struct ep_params ep_params = { 1, address };
    done(ucp_ep_create(worker, &ep_params, &ep), "ucp_ep_create");
    struct map_params map = { 3, memory, sizeof(memory) };
    done(ucp_mem_map(context, &map, &region), "ucp_mem_map");
    done(ucp_rkey_pack(context, region, &packed, &length), "ucp_rkey_pack");
    done(ucp_ep_rkey_unpack(ep, packed, &rkey), "ucp_ep_rkey_unpack");

    for (int size = 4; size <= 8; size += 4) {
        for (int op = ADD; op <= SWAP_IF_EQUAL; op += SWAP_IF_EQUAL) {
            memory[0] = 0x0102030405060708;
            uint64_t operand = op == ADD ? 1 : memory[0], reply = op == ADD ? 0 : 5;
            struct request_params request = {
                .mask = FIELD_DATATYPE | FIELD_REPLY,
                .datatype = (uint64_t)size << 3,
                .reply = &reply,
            };
            uint64_t to = (uintptr_t)memory;
            char *pending = ucp_atomic_op_nbx(ep, op, &operand, 1, to, rkey, &request);
            if ((intptr_t)pending < 0) {
                done((int)(intptr_t)pending, "ucp_atomic_op_nbx");
            }
            int status = pending == NULL ? 0 : IN_PROGRESS;
            while (status == IN_PROGRESS) {
                ucp_worker_progress(worker);
                status = ucp_request_check_status(pending);
            }
            done(status, "an atomic");
            uint64_t mask = size == 4 ? UINT32_MAX : UINT64_MAX;
            printf("%d bytes, %s: found %#" PRIx64 ", left %#" PRIx64 "\n", size,
                   op == ADD ? "add" : "swap", reply & mask, memory[0] & mask);
        }
    }
    return 0;
}
