/* Ligament: the C functions of EvoStore's client library, over Ligament stores.
 *
 * A shared object of its own, libligament_evostore.so: programs that load EvoStore's library find the same functions
 * here. They take no handle, so their state is the process's: the stores that set_servers named, tensors that were
 * saved and not yet published, leases of what get_prefix found. Any thread may call them; calls run one at a time. A
 * forked child opens the stores again and has none of its parent's unpublished tensors and leases.
 *
 * A model is a u64, a layer is a u64, a tensor is its layer's number plus its index in the layer. In the store the
 * model's name is its number in decimal, and a tensor's name is "LAYER/INDEX@OWNER", where OWNER is the number of the
 * model whose save wrote it; "!" at the end marks a tensor that was announced and never saved. A graph is a flat list
 * of (from, to) pairs of layers; a pair that occurs twice counts once, and the order of pairs does not matter.
 *
 * A failing call returns what EvoStore's does (false, 0 or -1); lig_evostore_status() and lig_error_text() say why.
 * The library also exports shutdown(void) -> int, which closes the stores; it is not declared here because the system
 * has a function of that name. For the same reason, load it with dlopen and RTLD_LOCAL; do not link with it. */
#ifndef LIGAMENT_EVOSTORE_H
#define LIGAMENT_EVOSTORE_H

#include <ligament/base.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIG_EVOSTORE_API LIG_API

/* The stores, as paths or URIs joined by NUL bytes. With several, model `id` lies in number id % count, and a search
 * asks them all. Drops what the process holds of the stores named before, unless they are the same. 0, or 1 on
 * failure. */
LIG_EVOSTORE_API int set_servers(const char *servers, size_t size);

/* The model that shares the longest prefix with the graph of `n` / 2 pairs: fills *id and at most `n` layers, returns
 * their number; 0 when no stored model shares a root. A layer is in the prefix when both graphs have it with the same
 * inputs, all of which are in the prefix. Ties: the higher val_acc, then the newer model. The model's prefix can be
 * read and inherited until store_meta has used it, for at most an hour, even when the model is retired meanwhile; the
 * latest 64 answers are held. */
LIG_EVOSTORE_API int get_prefix(const uint64_t *edges, int n, uint64_t *id, uint64_t *result);

/* Fills owners[i] with the model that wrote tensor lids[i] of model `id`, 0 where it has none; returns how many it
 * has. */
LIG_EVOSTORE_API int get_composition(uint64_t id, const uint64_t *lids, uint64_t *owners, int n);

/* Hands over the bytes of tensors of a model that store_meta publishes later. They are written at once and stay
 * invisible until then. */
LIG_EVOSTORE_API bool store_layers(uint64_t id, const uint64_t *lids, const uint64_t *sizes, unsigned char **data,
                                   int n);

/* Fills tensors of model `id`. One that was never saved is left as it is. */
LIG_EVOSTORE_API bool read_layers(uint64_t id, const uint64_t *lids, unsigned char **data, int n);

/* Publishes a model, whole, with one commit: tensor lids[i] was written by owners[i]. What `id` itself owns comes from
 * store_layers or, failing that, from the stored model of that number, which is replaced; what others own is inherited
 * without being written again. `val_acc` NaN: none. `sizes` is not read: the store knows them. */
LIG_EVOSTORE_API bool store_meta(uint64_t id, const uint64_t *edges, int m, const uint64_t *lids,
                                 const uint64_t *owners, const uint64_t *sizes, int n, float val_acc);

/* A tensor lives as long as a model whose composition names it, so +1 has nothing to do; -1 retires the model. false
 * when there is no such model. */
LIG_EVOSTORE_API bool update_ref_counter(uint64_t id, int value);

/* When calls began and ended: begin, end, begin, end, ... in microseconds of a clock of which only differences mean
 * something, by the names get_composition, get_prefix, read_layers, store_layers, store_meta and update_ref_counter,
 * without a name all in this order; the latest 65,536 calls of each. `ts` has room for get_num_time_stamps[_by_key]
 * numbers. -1 or false for a name that was never called. */
LIG_EVOSTORE_API int get_num_time_stamps(void);
LIG_EVOSTORE_API int get_time_stamps(uint64_t *ts);
LIG_EVOSTORE_API void clear_time_stamps(void);
LIG_EVOSTORE_API int get_num_time_stamps_by_key(const char *name);
LIG_EVOSTORE_API int get_time_stamps_by_key(uint64_t *ts, const char *name);
LIG_EVOSTORE_API bool clear_time_stamps_by_key(const char *name);

/* Fills stored[i] with 1 when tensor lids[i], written by owners[i], has bytes, and with 0 when it was announced without
 * them. `id` is a model that probably has it. Returns how many have; -1 on failure. */
LIG_EVOSTORE_API int lig_evostore_stored(uint64_t id, const uint64_t *lids, const uint64_t *owners, int n,
                                         unsigned char *stored);

/* The lig_status of this thread's last call of a function above. */
LIG_EVOSTORE_API int lig_evostore_status(void);

#ifdef __cplusplus
}
#endif
#endif
