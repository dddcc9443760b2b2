"""What are the public objects? `MasterArray`, its `PartitionMatrix` of `Partition`s, and `SubArray`."""

from aggarray.master.array import MasterArray
from aggarray.master.partitions import Partition, PartitionMatrix
from aggarray.master.subarray import SubArray

__all__ = ["MasterArray", "Partition", "PartitionMatrix", "SubArray"]
