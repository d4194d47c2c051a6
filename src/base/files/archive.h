/* archive: the files of a zip or tar archive as a tree of folders, each of which is read when it is needed, by its
 * offset. A path "photos.zip/cat/1.jpg" is the file cat/1.jpg of the archive photos.zip. The archive is not trusted.
 *
 * In the functions that take one, [archive] NULL stands for the file system. All may be called by several threads. */
#pragma once

#include "base/files/io.h"
#include "base/status.h"

struct archive;

/* The length of the archive's own path in [path], 10 of "photos.zip/cat": a file whose name ends with .zip, .tar or,
 * which archive_open rejects with advice, that of a compressed tar archive. 0: there is none. */
size_t archive_in_path(const char *path);

/* Reads the names of all files of the archive in [path]: of zip its directory, of tar the header before each file.
 * *out NULL: there is no archive in [path]. STATUS_DATA for an archive that is damaged, truncated, compressed as a
 * whole, encrypted, or has links, the same name twice or a name with "..". */
status archive_open(const char *path, struct archive **out);
void archive_close(struct archive *archive); /* takes NULL */

/* As io_stat. Paths begin with that of the archive, which is a folder. Times are not set. */
status archive_stat(const struct archive *archive, const char *path, struct io_info *info);

/* As io_list. STATUS_DATA: the archive has no such folder. */
status archive_list(const struct archive *archive, const char *folder, struct io_names *names);

/* The first [size] bytes of a file, *got of them; of a whole file of an archive the checksum is checked, which tar does
 * not have. */
status archive_read(const struct archive *archive, const char *path, void *bytes, size_t size, size_t *got);
