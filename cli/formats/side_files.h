/* The files that make a directory of weights a Hugging Face model: config.json, the tokenizer's,
 * generation_config.json. In a store each is a uint8 tensor named CLI_FILE_PREFIX and its name,
 * after all other tensors: equal files are stored once, and loading skips them. */
#ifndef CLI_SIDE_FILES_H
#define CLI_SIDE_FILES_H

#include "batch.h"

#define CLI_FILE_PREFIX "__files__/"

int cli_is_side_file(const lig_tensor *tensor);
/* Adds the small files of `folder` to batch->files. Weights, hidden files and subdirectories are
 * left out. */
lig_status cli_side_files_read(cli_batch *batch, const char *folder);
/* Moves batch->files to the end of batch->tensors, and back. */
lig_status cli_side_files_pack(cli_batch *batch);
lig_status cli_side_files_unpack(cli_batch *batch);
/* Writes batch->files into `folder`; existing files are kept unless `replace`. LIG_E_INVALID for a
 * name that would leave the directory. */
lig_status cli_side_files_write(const cli_batch *batch, const char *folder, int replace);

#endif
