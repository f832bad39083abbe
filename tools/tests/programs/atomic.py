"""Two fetch-and-adds on a counter of the peer, at the offset that is given; `wait` stays until stdin ends."""
import sys

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
rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC
old, counter = MR(pd, 4096, rights), MR(pd, 4096, rights)

def queue_pair():
    return QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4)))

def connect(qp, peer):
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu = peer.qp_num, IBV_MTU_1024
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC
    attr.ah_attr = AHAttr(dlid=context.query_port(1).lid, port_num=1)
    attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
    qp.to_rts(attr)

sender, receiver = queue_pair(), queue_pair()
connect(sender, receiver)
connect(receiver, sender)
offset = int(sys.argv[1])
for _ in range(2):
    request = SendWR(opcode=IBV_WR_ATOMIC_FETCH_AND_ADD, num_sge=1, sg=[SGE(old.buf, 8, old.lkey)])
    request.set_wr_atomic(counter.rkey, counter.buf + offset, 1, 0)
    sender.post_send(request)
    completions = []
    while not completions:
        completions = cq.poll(1)[1]
    # One write for the line: what others write to the same place does not come in between.
    sys.stdout.write(f'status {completions[0].status}, vendor_err {completions[0].vendor_err:#x}\n')
if 'wait' in sys.argv:
    sys.stdin.read()
