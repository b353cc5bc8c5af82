package laws

import (
	"context"

	"github.com/zkrecipes/zkrecipes/semaphore"
)

var (
	two = semaphoreOf(2)
	one = semaphoreOf(1)
)

func semaphoreOf(n int) kind[*semaphore.Semaphore, *semaphore.Permit] {
	return kind[*semaphore.Semaphore, *semaphore.Permit]{
		own:  "permit-",
		make: func(s *Stage) *semaphore.Semaphore { return semaphore.New(s.Client, s.Path, n) },
		back: (*semaphore.Permit).Release,
	}
}

// resizing changes the number of permits, to another one each time.
func resizing(s *Stage) Verb {
	n := 1
	return Verb{
		Before: func() { n++ },
		Call:   call(func(ctx context.Context) error { return one.make(s).Resize(ctx, n) }),
	}
}

// permits asks for the number of permits, which the other client has just changed.
func permits(s *Stage) Verb {
	want := 2
	v := two.about((*semaphore.Semaphore).Acquire, func(m *semaphore.Semaphore, ctx context.Context, _ string) error {
		n, err := m.Permits(ctx)
		return found(want, n, err)
	})(s)
	ready := v.Before
	v.Before = func() {
		ready()
		want++
		check(two.make(s.other()).Resize(s.ctx, want))
	}
	return v
}

var semaphoreRows = []Row{
	{"semaphore.Semaphore.Acquire", two.acquiring((*semaphore.Semaphore).Acquire)},
	{"semaphore.Semaphore.Acquire no permit free", behind(one.acquiring((*semaphore.Semaphore).Acquire), one.acquiring((*semaphore.Semaphore).Acquire))},
	{"semaphore.Semaphore.TryAcquire", two.acquiring((*semaphore.Semaphore).TryAcquire)},
	{"semaphore.Semaphore.TryAcquire no permit free", behind(one.acquiring((*semaphore.Semaphore).TryAcquire), one.acquiring((*semaphore.Semaphore).Acquire))},
	{"semaphore.Semaphore.Do", two.doing((*semaphore.Semaphore).Do)},
	{"semaphore.Semaphore.TryDo", two.doing((*semaphore.Semaphore).TryDo)},
	{"semaphore.Semaphore.Contenders", listing(two, (*semaphore.Semaphore).Acquire, (*semaphore.Semaphore).Contenders)},
	{"semaphore.Semaphore.Break", two.breaking((*semaphore.Semaphore).Acquire, (*semaphore.Semaphore).Break)},
	{"semaphore.Semaphore.Permits", permits},
	{"semaphore.Semaphore.Resize", resizing},
	{"semaphore.Semaphore.Resize with a holder", changed(resizing, func(s *Stage, v *Verb) {
		next, held := v.Before, (*Held)(nil)
		v.Before = func() {
			if held == nil {
				held = must(one.acquiring((*semaphore.Semaphore).Acquire)(s.other()).Call(s.ctx))
				s.Cleanup(func() { held.Back(context.Background()) })
			}
			next()
		}
	})},
	{"semaphore.Permit.Multi", two.fencing((*semaphore.Semaphore).Acquire, (*semaphore.Permit).Multi)},
	{"semaphore.Permit.Release", two.returning((*semaphore.Semaphore).Acquire, (*semaphore.Permit).Release)},
}
