"""As many RDMA writes as the argument says, one after the other. Says its process number first."""
import os
import signal
import sys

from pyverbs.addr import AHAttr
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import *
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

# Python ignores it, which other programs do not.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
print(os.getpid(), flush=True)
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
for _ in range(int(sys.argv[1])):
    request = SendWR(opcode=IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(memory.buf, 64, memory.lkey)])
    request.set_wr_rdma(memory.rkey, memory.buf + 64)
    qp.post_send(request)
    while cq.poll(1)[0] == 0:
        pass
