/* Orders are stored under their seed; loaders over a dataset with several owners draw the same rows as a loader alone.
 * ctest-labels: unit */
#include <stdlib.h>

#include "check_main.h"
#include "data/sampling/sampler.h"

TEST(the_newest_order_of_a_slot_is_stored) {
    struct orders orders = {0};
    uint32_t numbers[3] = {2, 0, 1}, stored[3];
    struct row_order order = {.small = numbers}, got = {.small = stored};
    ck_assert(!orders_get(&orders, 7, 3, &got));
    orders_put(&orders, 7, 3, &order);
    ck_assert(orders_get(&orders, 7, 3, &got));
    ck_assert_mem_eq(stored, numbers, sizeof stored);
    ck_assert(!orders_get(&orders, 8, 3, &got));
    ck_assert(!orders_get(&orders, 7, 2, &got));
    ck_assert(!orders_get(&orders, 0, 3, &got)); /* the slot of no seed yet */
    uint64_t other = 7 + orders.slots;
    ck_assert(!orders_get(&orders, other, 3, &got));
    numbers[0] = 5;
    orders_put(&orders, other, 3, &order);
    ck_assert(orders_get(&orders, other, 3, &got) && stored[0] == 5);
    ck_assert(!orders_get(&orders, 7, 3, &got));
    orders_free(&orders);
}

TEST(long_orders_are_not_stored) {
    struct orders orders = {0};
    size_t rows = ((size_t)1 << 18) + 1;
    struct row_order order = {.small = calloc(rows, sizeof *order.small)};
    orders_put(&orders, 1, rows, &order);
    ck_assert(!orders_get(&orders, 1, rows, &order));
    orders_free(&orders);
    free(order.small);
}

CHECK_MAIN("orders")
