/* Packs in files on this host: the server passes descriptors, and the client reads and maps the
 * files itself. */
#ifndef LIGI_CLIENT_FILES_H
#define LIGI_CLIENT_FILES_H

#include "store/serve/client/client.h"

/* A pack's file, open for reading; reference-counted. It stays readable after the pack was
 * removed. */
typedef struct ligi_client_file ligi_client_file;

/* The most recently received descriptors. Shared. */
typedef struct ligi_client_files ligi_client_files;
lig_status ligi_client_files_create(ligi_client_files **files);
void ligi_client_files_destroy(ligi_client_files *files); /* NULL is valid */
/* Drops packs that were removed: an open file keeps its space on the disk. Does not block. */
void ligi_client_files_drop_removed(ligi_client_files *files);

/* The file of a pack; *file is NULL if there is none: another host, a pack in memory, a server that
 * sends no descriptors. */
lig_status ligi_client_file_open(ligi_client *client, uint64_t pack, ligi_client_file **file);
void ligi_client_file_drop(ligi_client *client, ligi_client_file *file);

uint64_t ligi_client_file_bytes(const ligi_client_file *file);
/* Implement lig_volume_ops.pack_read and pack_map. */
lig_status ligi_client_file_read(const ligi_client_file *file, const void *secret,
                                 const lig_range *ranges, size_t count, size_t *bad);
lig_status ligi_client_file_map(const ligi_client_file *file, uint32_t flags, lig_mapping *mapping);

#endif
