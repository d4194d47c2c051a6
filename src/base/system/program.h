/* program: this program, started again in a child process. */
#pragma once

/* Replaces this process, a child that has just been forked by a process of one thread, by a new start of this program
 * with [argv]. Returns if that fails, with errno. An emulator of another processor (qemu-user) cannot start a program
 * of it: there this process closes what a start would close, calls main and ends. */
void program_start_again(char *const argv[]);
