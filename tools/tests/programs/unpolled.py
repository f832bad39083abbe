"""Eight signaled WRITEs, for which a CQ has room for as many as are given. `poll`: polls all; `wait`: polls
none, and stays until stdin ends; `silent`: the same, to a peer that does not answer."""
import sys

from pyverbs.addr import AHAttr
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import *
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

room, manner = int(sys.argv[1]), sys.argv[2]
context = Context(name='mlx5_0')
# One entry is libmlx5's own, and it rounds up to a power of two.
pd, cq = PD(context), CQ(context, room - 1)
memory = MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

def queue_pair():
    return QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=8)))

def connect(qp, peer):
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu = peer.qp_num, IBV_MTU_1024
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE
    attr.ah_attr = AHAttr(dlid=context.query_port(1).lid, port_num=1)
    # A timeout of 0 never comes.
    attr.timeout, attr.retry_cnt, attr.rnr_retry = 0, 7, 7
    qp.to_rts(attr)

sender, receiver = queue_pair(), queue_pair()
connect(sender, receiver)
if manner != 'silent':
    connect(receiver, sender)
for _ in range(8):
    request = SendWR(opcode=IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(memory.buf, 8, memory.lkey)])
    request.set_wr_rdma(memory.rkey, memory.buf + 8)
    sender.post_send(request)
left = 8
while manner == 'poll' and left:
    left -= cq.poll(left)[0]
if manner != 'poll':
    sys.stdin.read()
