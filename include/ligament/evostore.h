/* Ligament: the C functions of EvoStore's client library, over Ligament stores.
 *
 * They are in a separate shared object, libligament_evostore.so, with the same functions as EvoStore's library. They
 * take no handle, so their state belongs to the process: the stores given to set_servers, tensors that were
 * saved and not yet published, and leases on the results of get_prefix. Any thread may call them; calls run one at a
 * time. A forked child opens the stores again and does not inherit unpublished tensors and leases.
 *
 * A model is a u64, a layer is a u64, a tensor is its layer's number plus its index in the layer. In the store the
 * model's name is its number in decimal, and a tensor's name is "LAYER/INDEX@OWNER", where OWNER is the number of the
 * model whose save wrote it; "!" at the end marks a tensor that was announced and never saved. A graph is a flat list
 * of (from, to) pairs of layers; a pair that occurs twice counts once, and the order of pairs does not matter.
 *
 * A call that fails returns what EvoStore's function returns (false, 0 or -1); lig_evostore_status() and
 * lig_error_text() give the reason. The library also exports shutdown(void) -> int, which closes the stores and ends
 * the servers of served ones, if they allow it (serve.h); returns 0, or 1 on failure. It is not declared here because
 * the system has a function of that name. For the same reason, load the library with dlopen and RTLD_LOCAL; do not link
 * with it. */
#ifndef LIGAMENT_EVOSTORE_H
#define LIGAMENT_EVOSTORE_H

#include <ligament/base.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIG_EVOSTORE_API LIG_API

/* Sets the stores, separated by NUL bytes: paths, URIs, or servers as lig_served_uri takes them ("host:port", the
 * path of an address file, "@PATH"). With several, model `id` is in number id % count, and a search covers all of
 * them. Releases all resources of the previous stores, unless they are the same. Returns 0, or 1 on
 * failure. */
LIG_EVOSTORE_API int set_servers(const char *servers, size_t size);

/* The model that shares the longest prefix with the graph of `n` / 2 pairs: fills *id and at most `n` layers, returns
 * their number; 0 if no stored model shares a root. A layer is in the prefix if both graphs have it with the same
 * inputs, all of which are in the prefix. Ties: the higher val_acc, then the newer model. The model's prefix can be
 * read and inherited until store_meta has used it, for at most an hour, even if the model is retired meanwhile; the
 * latest 64 results are leased. */
LIG_EVOSTORE_API int get_prefix(const uint64_t *edges, int n, uint64_t *id, uint64_t *result);

/* Fills owners[i] with the model that wrote tensor lids[i] of model `id`, 0 if the model lacks it; returns the number
 * of tensors that it has. */
LIG_EVOSTORE_API int get_composition(uint64_t id, const uint64_t *lids, uint64_t *owners, int n);

/* Writes tensors of a model that store_meta publishes later. They stay invisible until then. */
LIG_EVOSTORE_API bool store_layers(uint64_t id, const uint64_t *lids, const uint64_t *sizes, unsigned char **data,
                                   int n);

/* Fills tensors of model `id`. A tensor that was never saved is left unchanged. */
LIG_EVOSTORE_API bool read_layers(uint64_t id, const uint64_t *lids, unsigned char **data, int n);

/* Publishes a complete model with one commit: tensor lids[i] was written by owners[i]. Tensors that `id` itself owns
 * come from store_layers or else from the stored model of that number, which is replaced; tensors of other owners are
 * inherited without being written again. `val_acc` NaN: none. `sizes` is ignored. */
LIG_EVOSTORE_API bool store_meta(uint64_t id, const uint64_t *edges, int m, const uint64_t *lids,
                                 const uint64_t *owners, const uint64_t *sizes, int n, float val_acc);

/* A tensor exists as long as a model refers to it, so +1 has no effect; -1 retires the model. Returns false if there is
 * no such model. */
LIG_EVOSTORE_API bool update_ref_counter(uint64_t id, int value);

/* When calls began and ended: begin, end, begin, end, ... in microseconds of a monotonic clock with an arbitrary
 * origin. Names are get_composition, get_prefix, read_layers, store_layers, store_meta and update_ref_counter; a call
 * without a name covers all of them, in this order. The latest 65,536 calls of each name are kept. `ts` must have room
 * for get_num_time_stamps[_by_key] numbers. -1 or false for a name that was never called.
 *
 * If all stores are served, the times are measured by the servers, for the calls of all processes: they are those of
 * lig_store_time_stamps for lookup (get_composition), find (get_prefix), write (store_layers), commit (store_meta)
 * and retire (update_ref_counter), one server after the other; read_layers is measured in this process. -1 also on
 * failure. get_time_stamps[_by_key] copies the times that the preceding get_num_time_stamps[_by_key] counted, so
 * only one thread at a time should call them. */
LIG_EVOSTORE_API int get_num_time_stamps(void);
LIG_EVOSTORE_API int get_time_stamps(uint64_t *ts);
LIG_EVOSTORE_API void clear_time_stamps(void);
LIG_EVOSTORE_API int get_num_time_stamps_by_key(const char *name);
LIG_EVOSTORE_API int get_time_stamps_by_key(uint64_t *ts, const char *name);
LIG_EVOSTORE_API bool clear_time_stamps_by_key(const char *name);

/* Fills stored[i] with 1 if tensor lids[i], written by owners[i], has bytes, and with 0 if it was announced without
 * them. `id` is a model that probably has it. Returns the number of tensors with bytes; -1 on failure. */
LIG_EVOSTORE_API int lig_evostore_stored(uint64_t id, const uint64_t *lids, const uint64_t *owners, int n,
                                         unsigned char *stored);

/* The lig_status of this thread's last call of a function above. */
LIG_EVOSTORE_API int lig_evostore_status(void);

#ifdef __cplusplus
}
#endif
#endif
