/* registers: what products need so that a tile of sums stays in the vector registers of the instruction set. */
#ifndef DEVICE_CPU_SETS_REGISTERS_H
#define DEVICE_CPU_SETS_REGISTERS_H

/* KERNELS_REGISTERS: vector registers of the instruction set (32 or 16), from cmake/CpuKernels.cmake */
#ifndef KERNELS_REGISTERS
#define KERNELS_REGISTERS 16 /* for editors that read only the header */
#endif

/* Before each loop over the rows and the vectors of a tile. Without it gcc finds out late that the sums can be in
 * registers. For x86 it then copies them to memory and back before and after the loop over k, and for ARM in each step:
 * then 12 of 35 instructions are multiply-adds instead of 24 of 38. */
#if defined __GNUC__ && !defined __clang__
#define UNROLL _Pragma("GCC unroll 16")
#else
#define UNROLL
#endif

#endif
