/* Objects of the program, and the lists and trees that hold them.
 * The verifier must accept ok_*, and refuse no_*. */
#include "calls.h"

struct gnode {
	long key;
	struct bpf_list_node n;
	long pad[4];
};

struct tgnode {
	long key;
	struct bpf_rb_node rb;
};

struct rnode {
	long key;
	struct bpf_refcount ref;
	struct bpf_list_node n;
	struct bpf_rb_node rb;
};

struct plain {
	long a, b;
};

struct top {
	struct bpf_spin_lock l;
	struct bpf_list_head head __contains(gnode, n);
};

private(A) struct bpf_spin_lock gl;
private(A) struct bpf_list_head gh __contains(gnode, n);
private(B) struct bpf_spin_lock tl;
private(B) struct bpf_rb_root root __contains(tgnode, rb);
private(C) struct bpf_spin_lock rl;
private(C) struct bpf_list_head rh __contains(rnode, n);
private(C) struct bpf_rb_root rr __contains(rnode, rb);

static bool less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	return container_of(a, struct tgnode, rb)->key < container_of(b, struct tgnode,
		rb)->key;
}

static bool rless(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	return container_of(a, struct rnode, rb)->key < container_of(b, struct rnode, rb)->key;
}

static bool bad_less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	bpf_ktime_get_ns();
	return 0;
}

static bool unlock_less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	bpf_spin_unlock(&tl);
	return 0;
}

#define PUSH(h, x) bpf_list_push_back_impl(h, &(x)->n, 0, 0)
#define RBADD(r, x, l) bpf_rbtree_add_impl(r, &(x)->rb, l, 0, 0)

SEC("xdp")
int ok_new(struct xdp_md *ctx)
{
	struct plain *p = obj_new(struct plain);
	if (!p)
		return 0;
	p->a = 1;
	int r = p->b;
	obj_drop(p);
	return r;
}

SEC("xdp")
int no_new_leak(struct xdp_md *ctx)
{
	struct plain *p = obj_new(struct plain);
	if (!p)
		return 0;
	p->a = 1;
	return 0;
}

SEC("xdp")
int no_new_null(struct xdp_md *ctx)
{
	struct plain *p = obj_new(struct plain);
	p->a = 1;
	return 0;
}

SEC("xdp")
int no_new_after(struct xdp_md *ctx)
{
	struct plain *p = obj_new(struct plain);
	if (!p)
		return 0;
	obj_drop(p);
	return p->a;
}

SEC("xdp")
int no_new_oob(struct xdp_md *ctx)
{
	struct plain *p = obj_new(struct plain);
	if (!p)
		return 0;
	((long *)p)[2] = 1;
	obj_drop(p);
	return 0;
}

SEC("xdp")
int no_drop_null(struct xdp_md *ctx)
{
	struct plain *p = obj_new(struct plain);
	obj_drop(p);
	return 0;
}

SEC("xdp")
int no_drop_off(struct xdp_md *ctx)
{
	struct plain *p = obj_new(struct plain);
	if (!p)
		return 0;
	obj_drop(&p->b);
	return 0;
}

SEC("xdp")
int ok_push(struct xdp_md *ctx)
{
	struct gnode *p = obj_new(struct gnode);
	if (!p)
		return 0;
	p->key = 1;
	bpf_spin_lock(&gl);
	PUSH(&gh, p);
	bpf_spin_unlock(&gl);
	return 0;
}

SEC("xdp")
int no_push_nolock(struct xdp_md *ctx)
{
	struct gnode *p = obj_new(struct gnode);
	if (!p)
		return 0;
	PUSH(&gh, p);
	return 0;
}

SEC("xdp")
int no_push_wronglock(struct xdp_md *ctx)
{
	struct gnode *p = obj_new(struct gnode);
	if (!p)
		return 0;
	bpf_spin_lock(&tl);
	PUSH(&gh, p);
	bpf_spin_unlock(&tl);
	return 0;
}

SEC("xdp")
int ok_push_use_locked(struct xdp_md *ctx)
{
	struct gnode *p = obj_new(struct gnode);
	if (!p)
		return 0;
	bpf_spin_lock(&gl);
	PUSH(&gh, p);
	p->key = 3;
	bpf_spin_unlock(&gl);
	return 0;
}

SEC("xdp")
int no_push_use_unlocked(struct xdp_md *ctx)
{
	struct gnode *p = obj_new(struct gnode);
	if (!p)
		return 0;
	bpf_spin_lock(&gl);
	PUSH(&gh, p);
	bpf_spin_unlock(&gl);
	return p->key;
}

SEC("xdp")
int no_push_twice(struct xdp_md *ctx)
{
	struct gnode *p = obj_new(struct gnode);
	if (!p)
		return 0;
	bpf_spin_lock(&gl);
	PUSH(&gh, p);
	PUSH(&gh, p);
	bpf_spin_unlock(&gl);
	return 0;
}

SEC("xdp")
int no_push_drop(struct xdp_md *ctx)
{
	struct gnode *p = obj_new(struct gnode);
	if (!p)
		return 0;
	bpf_spin_lock(&gl);
	PUSH(&gh, p);
	bpf_spin_unlock(&gl);
	obj_drop(p);
	return 0;
}

SEC("xdp")
int no_push_wrongtype(struct xdp_md *ctx)
{
	struct rnode *p = obj_new(struct rnode);
	if (!p)
		return 0;
	bpf_spin_lock(&gl);
	PUSH(&gh, p);
	bpf_spin_unlock(&gl);
	return 0;
}

SEC("xdp")
int no_push_wrongnode(struct xdp_md *ctx)
{
	struct gnode *p = obj_new(struct gnode);
	if (!p)
		return 0;
	bpf_spin_lock(&gl);
	bpf_list_push_back_impl(&gh, (void *)&p->pad, 0, 0);
	bpf_spin_unlock(&gl);
	return 0;
}

SEC("xdp")
int ok_pop(struct xdp_md *ctx)
{
	bpf_spin_lock(&gl);
	struct bpf_list_node *n = bpf_list_pop_front(&gh);
	bpf_spin_unlock(&gl);
	if (!n)
		return 0;
	struct gnode *p = container_of(n, struct gnode, n);
	int r = p->key;
	obj_drop(p);
	return r;
}

SEC("xdp")
int no_pop_leak(struct xdp_md *ctx)
{
	bpf_spin_lock(&gl);
	struct bpf_list_node *n = bpf_list_pop_front(&gh);
	bpf_spin_unlock(&gl);
	return !!n;
}

SEC("xdp")
int no_pop_nolock(struct xdp_md *ctx)
{
	struct bpf_list_node *n = bpf_list_pop_front(&gh);
	if (!n)
		return 0;
	obj_drop(container_of(n, struct gnode, n));
	return 0;
}

SEC("xdp")
int ok_front(struct xdp_md *ctx)
{
	long r = 0;
	bpf_spin_lock(&gl);
	struct bpf_list_node *n = bpf_list_front(&gh);
	if (n)
		r = container_of(n, struct gnode, n)->key;
	bpf_spin_unlock(&gl);
	return r;
}

SEC("xdp")
int no_front_unlocked(struct xdp_md *ctx)
{
	long r = 0;
	bpf_spin_lock(&gl);
	struct bpf_list_node *n = bpf_list_front(&gh);
	bpf_spin_unlock(&gl);
	if (n)
		r = container_of(n, struct gnode, n)->key;
	return r;
}

SEC("xdp")
int no_head_write(struct xdp_md *ctx)
{
	*(volatile long *)&gh = 1;
	return 0;
}

SEC("xdp")
int no_node_write(struct xdp_md *ctx)
{
	struct gnode *p = obj_new(struct gnode);
	if (!p)
		return 0;
	*(volatile long *)&p->n = 1;
	obj_drop(p);
	return 0;
}

SEC("xdp")
int ok_rb(struct xdp_md *ctx)
{
	struct tgnode *p = obj_new(struct tgnode);
	if (!p)
		return 0;
	bpf_spin_lock(&tl);
	RBADD(&root, p, less);
	struct bpf_rb_node *f = bpf_rbtree_first(&root);
	if (!f) {
		bpf_spin_unlock(&tl);
		return 0;
	}
	f = bpf_rbtree_remove(&root, f);
	bpf_spin_unlock(&tl);
	if (!f)
		return 0;
	struct tgnode *q = container_of(f, struct tgnode, rb);
	int r = q->key;
	obj_drop(q);
	return r;
}

SEC("xdp")
int no_rb_nolock(struct xdp_md *ctx)
{
	struct tgnode *p = obj_new(struct tgnode);
	if (!p)
		return 0;
	RBADD(&root, p, less);
	return 0;
}

SEC("xdp")
int no_rb_badless(struct xdp_md *ctx)
{
	struct tgnode *p = obj_new(struct tgnode);
	if (!p)
		return 0;
	bpf_spin_lock(&tl);
	RBADD(&root, p, bad_less);
	bpf_spin_unlock(&tl);
	return 0;
}

SEC("xdp")
int no_rb_unlockless(struct xdp_md *ctx)
{
	struct tgnode *p = obj_new(struct tgnode);
	if (!p)
		return 0;
	bpf_spin_lock(&tl);
	RBADD(&root, p, unlock_less);
	bpf_spin_unlock(&tl);
	return 0;
}

SEC("xdp")
int no_rb_remove_after(struct xdp_md *ctx)
{
	bpf_spin_lock(&tl);
	struct bpf_rb_node *f = bpf_rbtree_first(&root);
	bpf_spin_unlock(&tl);
	if (!f)
		return 0;
	bpf_spin_lock(&tl);
	f = bpf_rbtree_remove(&root, f);
	bpf_spin_unlock(&tl);
	if (f)
		obj_drop(container_of(f, struct tgnode, rb));
	return 0;
}

SEC("xdp")
int no_rb_remove_leak(struct xdp_md *ctx)
{
	bpf_spin_lock(&tl);
	struct bpf_rb_node *f = bpf_rbtree_first(&root);
	if (!f) {
		bpf_spin_unlock(&tl);
		return 0;
	}
	f = bpf_rbtree_remove(&root, f);
	bpf_spin_unlock(&tl);
	return !!f;
}

SEC("xdp")
int no_rb_first_drop(struct xdp_md *ctx)
{
	bpf_spin_lock(&tl);
	struct bpf_rb_node *f = bpf_rbtree_first(&root);
	if (!f) {
		bpf_spin_unlock(&tl);
		return 0;
	}
	obj_drop(container_of(f, struct tgnode, rb));
	bpf_spin_unlock(&tl);
	return 0;
}

SEC("xdp")
int ok_ref(struct xdp_md *ctx)
{
	struct rnode *p = obj_new(struct rnode), *q;
	if (!p)
		return 0;
	q = bpf_refcount_acquire_impl(p, 0);
	bpf_spin_lock(&rl);
	PUSH(&rh, p);
	RBADD(&rr, q, rless);
	bpf_spin_unlock(&rl);
	return 0;
}

SEC("xdp")
int no_ref_leak(struct xdp_md *ctx)
{
	struct rnode *p = obj_new(struct rnode), *q;
	if (!p)
		return 0;
	q = bpf_refcount_acquire_impl(p, 0);
	obj_drop(p);
	return 0;
}

/* The kernel accepts these two, and breaks its memory: docs/differences.md. */
SEC("xdp")
int no_ref_inside(struct xdp_md *ctx)
{
	struct rnode *p = obj_new(struct rnode), *q;
	if (!p)
		return 0;
	q = bpf_refcount_acquire_impl(&p->ref, 0);
	obj_drop(p);
	if (q)
		obj_drop(q);
	return 0;
}

SEC("xdp")
int no_ref_popped_node(struct xdp_md *ctx)
{
	bpf_spin_lock(&rl);
	struct bpf_list_node *n = bpf_list_pop_front(&rh);
	bpf_spin_unlock(&rl);
	if (!n)
		return 0;
	struct rnode *q = bpf_refcount_acquire_impl(n, 0);
	obj_drop(container_of(n, struct rnode, n));
	if (q)
		obj_drop(q);
	return 0;
}

SEC("xdp")
int no_ref_plain(struct xdp_md *ctx)
{
	struct plain *p = obj_new(struct plain), *q;
	if (!p)
		return 0;
	q = bpf_refcount_acquire_impl(p, 0);
	obj_drop(p);
	if (q)
		obj_drop(q);
	return 0;
}

SEC("xdp")
int ok_ref_nonown(struct xdp_md *ctx)
{
	struct rnode *p = obj_new(struct rnode), *q;
	if (!p)
		return 0;
	bpf_spin_lock(&rl);
	PUSH(&rh, p);
	q = bpf_refcount_acquire_impl(p, 0);
	bpf_spin_unlock(&rl);
	if (!q)
		return 0;
	int r = q->key;
	obj_drop(q);
	return r;
}

SEC("xdp")
int no_ref_nonown_null(struct xdp_md *ctx)
{
	struct rnode *p = obj_new(struct rnode), *q;
	if (!p)
		return 0;
	bpf_spin_lock(&rl);
	PUSH(&rh, p);
	q = bpf_refcount_acquire_impl(p, 0);
	bpf_spin_unlock(&rl);
	int r = q->key;
	obj_drop(q);
	return r;
}

SEC("xdp")
int ok_percpu(struct xdp_md *ctx)
{
	struct plain *p = bpf_percpu_obj_new_impl(bpf_core_type_id_local(struct plain), 0);
	if (!p)
		return 0;
	bpf_percpu_obj_drop_impl(p, 0);
	return 0;
}

SEC("xdp")
int no_percpu_deref(struct xdp_md *ctx)
{
	struct plain *p = bpf_percpu_obj_new_impl(bpf_core_type_id_local(struct plain), 0);
	if (!p)
		return 0;
	int r = p->a;
	bpf_percpu_obj_drop_impl(p, 0);
	return r;
}

SEC("xdp")
int no_percpu_drop(struct xdp_md *ctx)
{
	struct plain *p = bpf_percpu_obj_new_impl(bpf_core_type_id_local(struct plain), 0);
	if (!p)
		return 0;
	obj_drop(p);
	return 0;
}

