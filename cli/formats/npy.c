/* The header of a .npy file: magic, version, length, and a Python dict of three known keys. */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

typedef struct spelling {
    const char *descr;
    uint32_t dtype;
} spelling;

/* Little-endian; the first spelling of a dtype is the one that is written. */
static const spelling spellings[] = {
    {"|b1", LIG_BOOL},      {"|i1", LIG_INT8},        {"|u1", LIG_UINT8},   {"<i2", LIG_INT16},
    {"<i4", LIG_INT32},     {"<i8", LIG_INT64},       {"<u2", LIG_UINT16},  {"<u4", LIG_UINT32},
    {"<u8", LIG_UINT64},    {"<f2", LIG_FLOAT16},     {"<f4", LIG_FLOAT32}, {"<f8", LIG_FLOAT64},
    {"<c8", LIG_COMPLEX64}, {"<c16", LIG_COMPLEX128}, {"<i1", LIG_INT8},    {"<u1", LIG_UINT8},
    {"<b1", LIG_BOOL},      {NULL, LIG_DTYPE_NONE},
};

typedef struct scan {
    const char *name;
    const char *at, *end;
    cli_npy *npy;
    unsigned seen; /* bits: descr, fortran_order, shape */
} scan;

static lig_status corrupt(const char *name, const char *what)
{
    return lig_fail(LIG_E_CORRUPT, "'%.200s' is not a valid .npy array: %s", name, what);
}

static void skip_space(scan *self)
{
    while (self->at < self->end && (*self->at == ' ' || *self->at == '\n' || *self->at == '\t'))
        self->at++;
}

/* Consumes the next character and returns 1 if it is `letter`. */
static int take(scan *self, char letter)
{
    skip_space(self);
    if (self->at == self->end || *self->at != letter)
        return 0;
    self->at++;
    return 1;
}

/* A string without escapes, as written by NumPy. */
static int take_string(scan *self, char *text, size_t text_bytes)
{
    skip_space(self);
    if (self->at == self->end || (*self->at != '\'' && *self->at != '"'))
        return 0;
    char quote = *self->at++;
    const char *start = self->at;
    while (self->at < self->end && *self->at != quote && *self->at != '\\')
        self->at++;
    size_t bytes = (size_t)(self->at - start);
    if (!take(self, quote) || bytes >= text_bytes)
        return 0;
    memcpy(text, start, bytes);
    text[bytes] = '\0';
    return 1;
}

static int take_word(scan *self, const char *word)
{
    size_t bytes = strlen(word);
    skip_space(self);
    if ((size_t)(self->end - self->at) < bytes || memcmp(self->at, word, bytes) != 0)
        return 0;
    self->at += bytes;
    return 1;
}

static lig_status take_descr(scan *self)
{
    char descr[32];
    skip_space(self);
    if (self->at < self->end && *self->at == '[')
        return lig_fail(LIG_E_UNSUPPORTED,
                        "array '%.200s' has a structured dtype: only plain numbers can be stored",
                        self->name);
    if (!take_string(self, descr, sizeof descr))
        return corrupt(self->name, "descr is not a string");
    for (const spelling *known = spellings; known->descr != NULL; known++) {
        if (strcmp(known->descr, descr) == 0) {
            self->npy->dtype = known->dtype;
            return LIG_OK;
        }
    }
    if (descr[0] == '>')
        return lig_fail(LIG_E_UNSUPPORTED,
                        "array '%.200s' is big-endian ('%s'): convert it with "
                        "array.astype(array.dtype.newbyteorder('<'))",
                        self->name, descr);
    return lig_fail(LIG_E_UNSUPPORTED, "array '%.200s' has dtype '%s': only numbers can be stored",
                    self->name, descr);
}

static lig_status take_dimension(scan *self)
{
    int64_t size = 0;
    skip_space(self);
    if (self->at == self->end || *self->at < '0' || *self->at > '9')
        return corrupt(self->name, "a dimension is not an integer");
    for (; self->at < self->end && *self->at >= '0' && *self->at <= '9'; self->at++)
        if (__builtin_mul_overflow(size, 10, &size) ||
            __builtin_add_overflow(size, *self->at - '0', &size))
            return corrupt(self->name, "a dimension is too large");
    if (self->npy->ndim == LIG_NDIM_MAX)
        return lig_fail(LIG_E_LIMIT, "array '%.200s' has more than %d dimensions", self->name,
                        LIG_NDIM_MAX);
    self->npy->shape[self->npy->ndim++] = size;
    return LIG_OK;
}

static lig_status take_shape(scan *self)
{
    if (!take(self, '('))
        return corrupt(self->name, "shape is not a tuple");
    self->npy->ndim = 0;
    while (!take(self, ')')) {
        LIG_TRY(take_dimension(self));
        if (take(self, ','))
            continue;
        if (!take(self, ')'))
            return corrupt(self->name, "shape is not a tuple");
        break;
    }
    return LIG_OK;
}

static lig_status take_member(scan *self)
{
    char key[32];
    if (!take_string(self, key, sizeof key) || !take(self, ':'))
        return corrupt(self->name, "header is not a dict");
    if (strcmp(key, "descr") == 0) {
        self->seen |= 1;
        return take_descr(self);
    }
    if (strcmp(key, "fortran_order") == 0) {
        self->seen |= 2;
        self->npy->fortran = take_word(self, "True");
        return self->npy->fortran || take_word(self, "False")
                   ? LIG_OK
                   : corrupt(self->name, "fortran_order is neither True nor False");
    }
    if (strcmp(key, "shape") == 0) {
        self->seen |= 4;
        return take_shape(self);
    }
    return corrupt(self->name, "header has an unknown key");
}

static lig_status take_dict(scan *self)
{
    if (!take(self, '{'))
        return corrupt(self->name, "header is not a dict");
    while (!take(self, '}')) {
        LIG_TRY(take_member(self));
        if (take(self, ','))
            continue;
        if (!take(self, '}'))
            return corrupt(self->name, "header is not a dict");
        break;
    }
    skip_space(self);
    if (self->at != self->end)
        return corrupt(self->name, "unexpected text after the header");
    return self->seen == 7 ? LIG_OK
                           : corrupt(self->name, "descr, fortran_order or shape is missing");
}

lig_status cli_npy_parse(cli_npy *npy, const char *name, const uint8_t *data, uint64_t bytes)
{
    *npy = (cli_npy){0};
    if (bytes < 12 || memcmp(data, "\x93NUMPY", 6) != 0)
        return corrupt(name, "wrong magic number");
    if (data[6] < 1 || data[6] > 3)
        return lig_fail(LIG_E_UNSUPPORTED, "array '%.200s' has unsupported .npy version %u.%u",
                        name, data[6], data[7]);
    uint64_t length = data[8] | (uint64_t)data[9] << 8, start = 10;
    if (data[6] > 1) {
        length |= (uint64_t)data[10] << 16 | (uint64_t)data[11] << 24;
        start = 12;
    }
    if (length > bytes - start)
        return corrupt(name, "truncated header");
    const char *text = (const char *)data + start;
    scan self = {.name = name, .at = text, .end = text + length, .npy = npy};
    LIG_TRY(take_dict(&self));
    npy->header_bytes = start + length;
    npy->bytes = lig_dtype_bytes(npy->dtype);
    for (uint32_t i = 0; i < npy->ndim; i++)
        if (__builtin_mul_overflow(npy->bytes, (uint64_t)npy->shape[i], &npy->bytes))
            return corrupt(name, "shape is too large");
    if (npy->bytes != bytes - npy->header_bytes)
        return corrupt(name, "shape does not match the size of the data");
    return LIG_OK;
}

lig_status cli_npy_format(const lig_tensor *tensor, char *header, size_t *header_bytes)
{
    const spelling *known = spellings;
    char *text = header + 10;
    size_t room = CLI_NPY_HEADER_BYTES_MAX - 10;
    while (known->descr != NULL && known->dtype != tensor->dtype)
        known++;
    if (known->descr == NULL)
        return lig_fail(
            LIG_E_UNSUPPORTED,
            "tensor '%.200s' has dtype %s, which NumPy does not support (use .safetensors instead)",
            tensor->name, lig_dtype_name(tensor->dtype));
    size_t used = (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                                   known->descr);
    for (uint32_t i = 0; i < tensor->ndim; i++)
        used += (size_t)snprintf(text + used, room - used, i + 1 < tensor->ndim ? "%lld, " : "%lld",
                                 (long long)tensor->shape[i]);
    used += (size_t)snprintf(text + used, room - used, tensor->ndim == 1 ? ",), }" : "), }");
    size_t total = (10 + used + 1 + 63) / 64 * 64;
    memset(text + used, ' ', total - 10 - used);
    header[total - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((total - 10) & 0xFF);
    header[9] = (char)((total - 10) >> 8);
    *header_bytes = total;
    return LIG_OK;
}
