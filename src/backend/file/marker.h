/* The marker of a store, the file `ligament`, which contains its format. */
#ifndef LIGI_FILE_MARKER_H
#define LIGI_FILE_MARKER_H

#include <ligament/base.h>

#define LIGI_FORMAT_CATALOG 1 /* the catalog is an LMDB file, catalog.mdb */
#define LIGI_FORMAT_LOG 2     /* the catalog is a log of commits */

/* LIG_E_NOTFOUND without an error text if there is none; LIG_E_UNSUPPORTED for a newer format. */
lig_status ligi_marker_read(int folder_fd, const char *place, int *format);

/* Creates the marker of a new store; *made is 0 if another process was first. */
lig_status ligi_marker_make(int folder_fd, const char *place, int sync, int *made);

/* Replaces the marker of format 1: prepare takes all the space that it needs, publish makes it
 * visible and durable. One process at a time; discard after a prepare that is not published. */
lig_status ligi_marker_prepare(int folder_fd, const char *place);
lig_status ligi_marker_publish(int folder_fd, const char *place);
void ligi_marker_discard(int folder_fd);

#endif
