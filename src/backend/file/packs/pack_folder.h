/* The folder of packs: names, opening, listing, mapping, removal. */
#ifndef LIGI_PACK_FOLDER_H
#define LIGI_PACK_FOLDER_H

#include "backend/file/file.h"

lig_status ligi_file_pack_open(const ligi_file *self, uint64_t id, int flags, int *fd);
void ligi_file_pack_name(char name[LIGI_PACK_NAME_BYTES], uint64_t id);
void ligi_file_pack_forget_list(ligi_file *self);
void ligi_file_packs_clean(const ligi_file *self);
lig_status ligi_file_pack_size(void *self, uint64_t id, uint64_t *bytes);
lig_status ligi_file_pack_descriptor(void *self, uint64_t id, int *descriptor);
lig_status ligi_file_pack_map(void *self, uint64_t id, uint32_t flags, lig_mapping *mapping);
void ligi_file_pack_unmap(void *self, lig_mapping *mapping);
lig_status ligi_file_pack_remove(void *self, uint64_t id);
lig_status ligi_file_pack_next(void *self, uint64_t after, uint64_t *id);

#endif
