"""Three RDMA writes from one queue pair to another, the second with an rkey that lets nobody write."""
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
source = MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE)
target = MR(pd, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

def queue_pair():
    return QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4)))

def connect(qp, peer):
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu, attr.max_rd_atomic = peer.qp_num, IBV_MTU_1024, 1
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE
    attr.ah_attr = AHAttr(dlid=context.query_port(1).lid, port_num=1)
    attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
    qp.to_rts(attr)

sender, receiver = queue_pair(), queue_pair()
connect(sender, receiver)
connect(receiver, sender)
for length, region in (64, target), (128, source), (256, target):
    request = SendWR(opcode=IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(source.buf, length, source.lkey)])
    request.set_wr_rdma(region.rkey, region.buf)
    sender.post_send(request)
completions = []
while len(completions) < 3:
    completions += cq.poll(3)[1]
for completion in completions:
    print(f'status {completion.status}, vendor_err {completion.vendor_err:#x}')
