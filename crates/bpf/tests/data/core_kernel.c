/* The kernel that core.c is relocated against: the same names, other layouts. */
typedef unsigned long long u64;
typedef unsigned int u32;
enum mode { MODE_NEW = 0, MODE_OFF = 3, MODE_ON = 9 };
enum wide { WIDE_MAX = 0x123456789abcdefull };
struct point { u32 tag; struct { long x; union { u64 y; char raw[8]; }; }; };
struct thing {
	char pad[24];
	struct point at[4];
	u64 grown;
	u32 shrunk;
	int flags : 3;
	unsigned mode : 5;
	enum mode kind;
	char name[32];
	int signed_now;
	u32 tail[];
};
struct ops { int (*run)(struct thing *thing, int how); void *priv; };
struct thing towpath_thing;
struct ops towpath_ops;
enum mode towpath_mode;
enum wide towpath_wide;
