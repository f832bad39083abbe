/* Calls functions of libibverbs by addresses that dlsym gives, so that the program is not linked with it. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

static void *loaded(const char *name)
{
	static void *library;
	void *found;

	if (!library)
		library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	found = library ? dlsym(library, name) : NULL;
	if (!found) {
		fprintf(stderr, "%s: %s\n", name, dlerror());
		exit(2);
	}
	return found;
}

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#define LOADED(name) ((__typeof__(&name))loaded(#name))
#define ibv_get_device_list LOADED(ibv_get_device_list)
#define ibv_free_device_list LOADED(ibv_free_device_list)
#define ibv_open_device LOADED(ibv_open_device)
#define ibv_alloc_pd LOADED(ibv_alloc_pd)
#define ibv_query_port(context, port, attr) \
	LOADED(ibv_query_port)(context, port, (struct _compat_ibv_port_attr *)(attr))
#define ibv_query_gid LOADED(ibv_query_gid)
#define ibv_create_cq LOADED(ibv_create_cq)
#define ibv_create_qp LOADED(ibv_create_qp)
#define ibv_modify_qp LOADED(ibv_modify_qp)
#define ibv_destroy_qp LOADED(ibv_destroy_qp)
#define ibv_reg_mr LOADED(ibv_reg_mr)
#define ibv_wc_status_str LOADED(ibv_wc_status_str)
