/* Only ENOEXEC, by which the kernel says that the program is of another processor, is answered by main: any other
 * failure is one of this system, which the user has to know. */
#include "base/system/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv);

/* As exec does. */
static void close_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        int fd = atoi(entry->d_name);
        if (fd != dirfd(folder) && (fcntl(fd, F_GETFD) & FD_CLOEXEC)) close(fd);
    }
    if (folder) closedir(folder);
}

void program_start_again(char *const argv[]) {
    int argc = 0;
    execv("/proc/self/exe", argv);
    if (errno != ENOEXEC) return;
    while (argv[argc]) argc++;
    close_descriptors();
    exit(main(argc, (char **)argv));
}
