#include "backend/s3/client/s3_attempt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/s3/wire/s3_list.h"
#include "backend/s3/wire/s3_text.h"
#include "base/clock.h"

#define URL_BYTES (LIGI_S3_HOST_BYTES + LIGI_S3_PATH_BYTES + 4096 + 16)
#define HEADER_BYTES 2400
#define SIGNED_BODY_MAX (UINT64_C(1) << 18) /* larger ones carry hashes of their own */
#define RECEIVE_BYTES (512L << 10)
#define SEND_BYTES (1024L << 10)

/* --- bytes ---------------------------------------------------------------------------------- */

static size_t send_body(char *out, size_t size, size_t count, void *context)
{
    ligi_s3_transfer *transfer = context;
    size_t bytes = size * count, left = transfer->body_bytes - transfer->sent_bytes;

    if (bytes > left)
        bytes = left;
    if (bytes > 0)
        memcpy(out, (const char *)transfer->body + transfer->sent_bytes, bytes);
    transfer->sent_bytes += bytes;
    return bytes;
}

/* libcurl sends again from the start when a connection that was kept open turns out to be
 * closed. */
static int seek_body(void *context, curl_off_t offset, int origin)
{
    ligi_s3_transfer *transfer = context;

    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > transfer->body_bytes)
        return CURL_SEEKFUNC_FAIL;
    transfer->sent_bytes = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static size_t fill_memory(ligi_s3_transfer *transfer, const char *data, size_t bytes)
{
    size_t taken = 0;

    while (taken < bytes && transfer->into_at < transfer->into_count) {
        const struct iovec *part = &transfer->into[transfer->into_at];
        size_t room = part->iov_len - (size_t)transfer->into_used;
        size_t now = bytes - taken < room ? bytes - taken : room;
        if (part->iov_base != NULL && now > 0)
            memcpy((char *)part->iov_base + transfer->into_used, data + taken, now);
        taken += now;
        transfer->into_used += now;
        if (transfer->into_used == part->iov_len) {
            transfer->into_at++;
            transfer->into_used = 0;
        }
    }
    transfer->filled_bytes += taken;
    return taken;
}

static size_t append_received(ligi_s3_transfer *transfer, const char *data, size_t bytes)
{
    if (bytes > transfer->received_max - transfer->received_bytes)
        return 0;
    size_t need = transfer->received_bytes + bytes;
    size_t grown = 4096;
    while (grown < need)
        grown *= 2;
    char *memory = realloc(transfer->received, grown);
    if (memory == NULL)
        return 0;
    memcpy(memory + transfer->received_bytes, data, bytes);
    transfer->received = memory;
    transfer->received_bytes = need;
    return bytes;
}

/* Too much for the place it goes to ends the attempt: libcurl reports CURLE_WRITE_ERROR. */
static size_t receive_body(char *data, size_t size, size_t count, void *context)
{
    ligi_s3_transfer *transfer = context;
    size_t bytes = size * count;

    if (transfer->answer.http >= 300) {
        size_t room = sizeof transfer->error_body - transfer->error_bytes;
        size_t taken = bytes < room ? bytes : room;
        memcpy(transfer->error_body + transfer->error_bytes, data, taken);
        transfer->error_bytes += taken;
        return bytes;
    }
    if (transfer->into != NULL)
        return fill_memory(transfer, data, bytes);
    return append_received(transfer, data, bytes);
}

/* --- headers of the answer ------------------------------------------------------------------ */

/* The value if the line is the header `name`, otherwise NULL. */
static const char *header_value(const char *line, const char *name)
{
    size_t bytes = strlen(name);

    if (strncasecmp(line, name, bytes) != 0 || line[bytes] != ':')
        return NULL;
    line += bytes + 1;
    return line + strspn(line, " \t");
}

static void copy_value(char *out, size_t out_bytes, const char *value)
{
    size_t bytes = strcspn(value, "\r\n");

    if (bytes >= out_bytes)
        bytes = 0;
    memcpy(out, value, bytes);
    out[bytes] = '\0';
}

/* "bytes 0-99/1000": 0 if it does not begin where the request asked. */
static int take_range(ligi_s3_transfer *transfer, const char *value)
{
    unsigned long long first, last, total;

    if (sscanf(value, "bytes %llu-%llu/%llu", &first, &last, &total) != 3)
        return 0;
    transfer->answer.total_bytes = total;
    return first == transfer->range_from;
}

static int take_header(ligi_s3_transfer *transfer, const char *line)
{
    ligi_s3_answer *answer = &transfer->answer;
    const char *value;

    if ((value = header_value(line, "Date")) != NULL)
        answer->date_s = ligi_s3_date_parse(value);
    else if ((value = header_value(line, "Last-Modified")) != NULL)
        answer->modified_s = ligi_s3_date_parse(value);
    else if ((value = header_value(line, "ETag")) != NULL)
        copy_value(answer->etag, sizeof answer->etag, value);
    else if ((value = header_value(line, "x-amz-bucket-region")) != NULL)
        copy_value(answer->region, sizeof answer->region, value);
    else if ((value = header_value(line, "Retry-After")) != NULL)
        answer->retry_after_s = strtoll(value, NULL, 10);
    else if ((value = header_value(line, "Content-Length")) != NULL && answer->http != 206)
        answer->total_bytes = strtoull(value, NULL, 10);
    else if ((value = header_value(line, "Content-Range")) != NULL && answer->http == 206)
        return take_range(transfer, value);
    if (answer->retry_after_s < 0)
        answer->retry_after_s = 0;
    return 1;
}

static size_t receive_header(char *data, size_t size, size_t count, void *context)
{
    ligi_s3_transfer *transfer = context;
    size_t bytes = size * count;
    char line[1024];

    if (bytes >= sizeof line)
        return bytes;
    memcpy(line, data, bytes);
    line[bytes] = '\0';
    if (strncmp(line, "HTTP/", 5) == 0) {
        const char *space = strchr(line, ' ');
        transfer->answer.http = space != NULL ? (int)strtol(space, NULL, 10) : 0;
        return bytes;
    }
    if (take_header(transfer, line))
        return bytes;
    snprintf(transfer->curl_error, sizeof transfer->curl_error,
             "Content-Range does not match the request");
    return 0;
}

/* --- the request ---------------------------------------------------------------------------- */

typedef struct request_headers {
    ligi_s3_header items[8];
    size_t count;
    char date[LIGI_S3_DATE_BYTES], range[64], payload[LIGI_S3_SHA256_TEXT_BYTES];
} request_headers;

static void add_header(request_headers *headers, const char *name, const char *value)
{
    headers->items[headers->count++] = (ligi_s3_header){name, value};
}

/* Sorted by name, as they are signed. */
static int collect_headers(const ligi_s3_setting *setting, const ligi_s3_keys *keys,
                           const ligi_s3_transfer *transfer, request_headers *headers)
{
    int hashed = transfer->body_bytes <= SIGNED_BODY_MAX;

    if (hashed &&
        !ligi_s3_sha256_text(&setting->digest, transfer->body != NULL ? transfer->body : "",
                             transfer->body_bytes, headers->payload))
        return 0;
    if (!hashed)
        memcpy(headers->payload, LIGI_S3_UNSIGNED, sizeof LIGI_S3_UNSIGNED);
    add_header(headers, "host", setting->place.host);
    if (transfer->if_absent)
        add_header(headers, "if-none-match", "*");
    if (transfer->range_bytes > 0) {
        snprintf(headers->range, sizeof headers->range, "bytes=%llu-%llu",
                 (unsigned long long)transfer->range_from,
                 (unsigned long long)(transfer->range_from + transfer->range_bytes - 1));
        add_header(headers, "range", headers->range);
    }
    add_header(headers, "x-amz-content-sha256", headers->payload);
    add_header(headers, "x-amz-date", headers->date);
    if (keys->token[0] != '\0')
        add_header(headers, "x-amz-security-token", keys->token);
    return 1;
}

static int append_line(const ligi_s3_setting *setting, ligi_s3_transfer *transfer, const char *line)
{
    struct curl_slist *longer = setting->calls->curl_slist_append(transfer->headers, line);

    if (longer == NULL)
        return 0;
    transfer->headers = longer;
    return 1;
}

/* An empty "Expect:" and "Content-Type:" keep libcurl from adding its own: the first would cost a
 * round trip for every part. */
static int list_headers(const ligi_s3_setting *setting, ligi_s3_transfer *transfer,
                        const request_headers *headers, const char *authorization)
{
    char line[HEADER_BYTES];

    for (size_t i = 0; i < headers->count; i++) {
        const ligi_s3_header *one = &headers->items[i];
        if (strcmp(one->name, "host") == 0)
            continue;
        if (snprintf(line, sizeof line, "%s: %s", one->name, one->value) >= (int)sizeof line ||
            !append_line(setting, transfer, line))
            return 0;
    }
    if (authorization[0] != '\0') {
        snprintf(line, sizeof line, "Authorization: %s", authorization);
        if (!append_line(setting, transfer, line))
            return 0;
    }
    return append_line(setting, transfer, "Expect:") &&
           append_line(setting, transfer, "Content-Type:");
}

static int make_headers(const ligi_s3_setting *setting, const ligi_s3_keys *keys,
                        ligi_s3_transfer *transfer, const char *path, int64_t date_ns)
{
    request_headers headers = {.count = 0};
    char authorization[LIGI_S3_AUTHORIZATION_BYTES] = "";

    ligi_s3_date_text(date_ns, headers.date);
    if (!collect_headers(setting, keys, transfer, &headers))
        return 0;
    ligi_s3_signing signing = {.method = transfer->method,
                               .path = path,
                               .query = transfer->query != NULL ? transfer->query : "",
                               .headers = headers.items,
                               .header_count = headers.count,
                               .payload = headers.payload,
                               .access_key = keys->access_key,
                               .secret_key = keys->secret_key,
                               .region = setting->place.region,
                               .date = headers.date};
    if (keys->access_key[0] != '\0' && !ligi_s3_sign(&setting->digest, &signing, authorization))
        return 0;
    return list_headers(setting, transfer, &headers, authorization);
}

static void set_method(const ligi_s3_calls *calls, ligi_s3_transfer *transfer)
{
    CURL *easy = transfer->easy;

    if (strcmp(transfer->method, "HEAD") == 0) {
        calls->curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    } else if (strcmp(transfer->method, "PUT") == 0) {
        calls->curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        calls->curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)transfer->body_bytes);
        calls->curl_easy_setopt(easy, CURLOPT_READFUNCTION, send_body);
        calls->curl_easy_setopt(easy, CURLOPT_READDATA, transfer);
        calls->curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, seek_body);
        calls->curl_easy_setopt(easy, CURLOPT_SEEKDATA, transfer);
    } else if (strcmp(transfer->method, "POST") == 0) {
        calls->curl_easy_setopt(easy, CURLOPT_POST, 1L);
        calls->curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                                (curl_off_t)transfer->body_bytes);
        calls->curl_easy_setopt(easy, CURLOPT_POSTFIELDS,
                                transfer->body != NULL ? transfer->body : "");
    } else if (strcmp(transfer->method, "DELETE") == 0) {
        calls->curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "DELETE");
    }
}

static void set_limits(const ligi_s3_setting *setting, ligi_s3_transfer *transfer)
{
    const ligi_s3_calls *calls = setting->calls;
    CURL *easy = transfer->easy;
    int64_t left_ms = ligi_time_left(transfer->deadline_ns) / 1000000;

    calls->curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(left_ms > 0 ? left_ms : 1));
    calls->curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(setting->connect_ns / 1000000));
    calls->curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    calls->curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME,
                            (long)((setting->stall_ns + 999999999) / 1000000000));
    calls->curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    calls->curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    calls->curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    calls->curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    calls->curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    calls->curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
    calls->curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, SEND_BYTES);
    /* Otherwise libcurl reads http_proxy from the environment. */
    calls->curl_easy_setopt(easy, CURLOPT_PROXY, setting->proxy);
    calls->curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    calls->curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    if (setting->ca[0] != '\0')
        calls->curl_easy_setopt(easy, CURLOPT_CAINFO, setting->ca);
}

static void set_answer(const ligi_s3_calls *calls, ligi_s3_transfer *transfer)
{
    CURL *easy = transfer->easy;

    calls->curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers);
    calls->curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, receive_header);
    calls->curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
    calls->curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, receive_body);
    calls->curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    calls->curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    calls->curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->curl_error);
}

static void reset_answer(ligi_s3_transfer *transfer)
{
    transfer->answer = (ligi_s3_answer){0};
    transfer->sent_bytes = transfer->into_at = transfer->error_bytes = 0;
    transfer->into_used = transfer->filled_bytes = 0;
    transfer->received_bytes = 0;
    transfer->curl_error[0] = '\0';
}

int ligi_s3_attempt_prepare(const ligi_s3_setting *setting, const ligi_s3_keys *keys,
                            ligi_s3_transfer *transfer, int64_t date_ns)
{
    const ligi_s3_place *place = &setting->place;
    char path[LIGI_S3_PATH_BYTES], buffer[URL_BYTES];
    ligi_s3_text url = ligi_s3_text_over(buffer, sizeof buffer);

    reset_answer(transfer);
    setting->calls->curl_easy_reset(transfer->easy);
    int fits = ligi_s3_place_path(place, transfer->key, path, sizeof path);
    ligi_s3_text_format(&url, "%s://%s%s", place->tls ? "https" : "http", place->host, path);
    if (transfer->query != NULL)
        ligi_s3_text_format(&url, "?%s", transfer->query);
    if (!fits || url.full || !make_headers(setting, keys, transfer, path, date_ns)) {
        setting->calls->curl_slist_free_all(transfer->headers);
        transfer->headers = NULL;
        transfer->answer.link = LIGI_S3_LINK_REFUSED;
        snprintf(transfer->answer.message, sizeof transfer->answer.message,
                 "the request is too long or cannot be signed");
        return 0;
    }
    setting->calls->curl_easy_setopt(transfer->easy, CURLOPT_URL, url.data);
    set_method(setting->calls, transfer);
    set_limits(setting, transfer);
    set_answer(setting->calls, transfer);
    return 1;
}

/* --- the result ----------------------------------------------------------------------------- */

static ligi_s3_link link_of(CURLcode code, long request_bytes)
{
    switch (code) {
    case CURLE_OK: return LIGI_S3_LINK_OK;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR: return LIGI_S3_LINK_UNSENT;
    case CURLE_OPERATION_TIMEDOUT:
        return request_bytes == 0 ? LIGI_S3_LINK_UNSENT : LIGI_S3_LINK_LOST;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR: return LIGI_S3_LINK_UNTRUSTED;
    case CURLE_WRITE_ERROR:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT: return LIGI_S3_LINK_MALFORMED;
    default: return LIGI_S3_LINK_LOST;
    }
}

void ligi_s3_attempt_finish(const ligi_s3_setting *setting, ligi_s3_transfer *transfer,
                            CURLcode code)
{
    ligi_s3_answer *answer = &transfer->answer;
    const char *why = transfer->curl_error;
    long request_bytes = 0;

    setting->calls->curl_easy_getinfo(transfer->easy, CURLINFO_REQUEST_SIZE, &request_bytes);
    setting->calls->curl_slist_free_all(transfer->headers);
    transfer->headers = NULL;
    answer->link = link_of(code, request_bytes);
    if (answer->link == LIGI_S3_LINK_OK && answer->http >= 300)
        ligi_s3_answer_parse_error(answer, transfer->error_body, transfer->error_bytes);
    if (answer->link == LIGI_S3_LINK_OK)
        return;
    if (why[0] == '\0')
        why = setting->calls->curl_easy_strerror(code);
    snprintf(answer->message, sizeof answer->message, "%.255s", why);
    answer->http = 0;
}
