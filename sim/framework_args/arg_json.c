/* Arguments in JSON. See arg_list.h. */
#include "sim/framework_args/arg_list.h"

#include "core/json.h"
#include "core/parse.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 256, VALUE_BYTES = 1024 };

struct flattening {
    struct mist_arg_list *list;
    const char *path;
    struct mist_err *err;
};

static long line_of(const struct mist_json *value)
{
    struct mist_err at = {0};

    (void)mist_json_fail(value, MIST_ERR_INPUT, &at, "here");
    return at.line;
}

/* Appends a value that is no object to text; the elements of an array. */
static void add_text(const json_t *value, char text[VALUE_BYTES])
{
    char *dump;

    if (json_is_array(value)) {
        size_t i;
        json_t *element;
        json_array_foreach(value, i, element)
        {
            if (i > 0)
                mist_text_add(text, VALUE_BYTES, "", ",");
            if (!json_is_array(element))
                add_text(element, text);
        }
    } else if (json_is_string(value))
        mist_text_add(text, VALUE_BYTES, "", "%s", json_string_value(value));
    else if ((dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT))) {
        mist_text_add(text, VALUE_BYTES, "", "%s", dump);
        free(dump);
    }
}

/* All that is in an object, its names behind prefix; null says nothing. */
static enum mist_status flatten(const struct flattening *at,
                                const struct mist_json *object, const char *prefix)
{
    enum mist_status status = MIST_OK;
    const char *key;
    json_t *value;

    json_object_foreach(object->value, key, value)
    {
        struct mist_json member = {object->doc, object, key, 0, value};
        char name[NAME_BYTES], text[VALUE_BYTES] = "";
        int n = snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (n >= (int)sizeof name)
            return mist_json_fail(&member, MIST_ERR_INPUT, at->err,
                                  "a name is longer than %d bytes", NAME_BYTES - 1);
        if (json_is_object(value))
            status = flatten(at, &member, name);
        else if (!json_is_null(value)) {
            add_text(value, text);
            struct mist_arg_item item = {
                .name = name, .value = text, .line = line_of(&member)};
            status = mist_arg_list_add(at->list, &item, at->path, at->err);
        }
        if (status != MIST_OK)
            return status;
    }
    return MIST_OK;
}

enum mist_status mist_arg_list_read_json(struct mist_arg_list *list, const char *path,
                                         const char *text, size_t n, struct mist_err *err)
{
    struct flattening at = {list, path, err};
    struct mist_json_doc doc;
    enum mist_status status =
        mist_json_load_text(&doc, path ? path : "", text, n, MIST_JSON_FOREIGN, err);

    if (status != MIST_OK)
        return status;
    struct mist_json root = mist_json_root(&doc);
    status = mist_json_as_object(&root, err);
    if (status == MIST_OK)
        status = flatten(&at, &root, "");
    mist_json_fini(&doc);
    return status;
}

static json_t *make_value(const struct mist_arg_item *item)
{
    if (item->sort == MIST_ARG_BOOL)
        return json_boolean(strcmp(item->value, "true") == 0);
    if (item->sort == MIST_ARG_NUMBER)
        return json_loads(item->value, JSON_DECODE_ANY, NULL);
    return json_string(item->value);
}

/* Sets "a.b.c" of an object, making the objects a and a.b; false: out of memory. */
static bool set_value(json_t *object, const char *name, json_t *value)
{
    const char *dot;
    char key[NAME_BYTES];

    while ((dot = strchr(name, '.'))) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - name), name);
        json_t *inner = json_object_get(object, key);
        if (!inner) {
            inner = json_object();
            if (json_object_set_new(object, key, inner)) {
                json_decref(value);
                return false;
            }
        }
        object = inner;
        name = dot + 1;
    }
    return !json_object_set_new(object, name, value);
}

bool mist_arg_list_write_json(const struct mist_arg_list *list, FILE *stream)
{
    json_t *root = json_object();
    bool is_done = root;

    for (size_t i = 0; i < list->n && is_done; i++)
        is_done = set_value(root, list->items[i].name, make_value(&list->items[i]));
    is_done = is_done && mist_json_write(root, stream);
    json_decref(root);
    return is_done;
}
