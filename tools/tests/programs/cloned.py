"""A child that no function of the C library makes posts a request. Says which signal ended it."""
import ctypes
import os
import platform
import resource
import signal

from pyverbs.addr import AHAttr
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import *
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

context = Context(name='mlx5_0')
pd, cq = PD(context), CQ(context, 8)
memory = MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
qp = QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4)))
attr = QPAttr(port_num=1)
attr.dest_qp_num, attr.path_mtu, attr.max_rd_atomic = qp.qp_num, IBV_MTU_1024, 1
attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE
attr.ah_attr = AHAttr(dlid=context.query_port(1).lid, port_num=1)
attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
qp.to_rts(attr)
request = SendWR(opcode=IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(memory.buf, 64, memory.lkey)])
request.set_wr_rdma(memory.rkey, memory.buf + 64)
clone = {'x86_64': 56, 'aarch64': 220}[platform.machine()]
child = ctypes.CDLL(None).syscall(clone, int(signal.SIGCHLD), 0, 0, 0, 0)
if child == 0:
    # The kernel ends a child that does not get on.
    resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    qp.post_send(request)
    os._exit(0)
print('signal', os.WTERMSIG(os.waitpid(child, 0)[1]))
