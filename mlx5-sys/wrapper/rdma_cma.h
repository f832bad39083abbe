#include <rdma/rdma_cma.h>
