"""Arrays out of many files, and the partitions and sub-arrays they hold."""

from aggarray.arrays.master import MasterArray
from aggarray.arrays.partitions import Partition, PartitionMatrix
from aggarray.arrays.subarray import SubArray

__all__ = ["MasterArray", "Partition", "PartitionMatrix", "SubArray"]
