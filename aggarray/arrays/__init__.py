"""Arrays out of many files: `MasterArray`, its `PartitionMatrix` of `Partition`s, and `SubArray`."""

from aggarray.arrays.master import MasterArray
from aggarray.arrays.partitions import Partition, PartitionMatrix
from aggarray.arrays.subarray import SubArray

__all__ = ["MasterArray", "Partition", "PartitionMatrix", "SubArray"]
