// Package conform shows how a lock of yours behaves when things go wrong, whatever it is built on.
//
//	func TestLockConforms(t *testing.T) {
//		conform.Run(t, func(w *sim.World, c *sim.Client) conform.Lock {
//			m := mylock.New(c.Client, w.Path)
//			return conform.Lock{Acquire: func(ctx context.Context) (conform.Held, error) {
//				l, err := m.Lock(ctx)
//				if err != nil {
//					return conform.Held{}, err
//				}
//				return conform.Held{Release: l.Unlock, Err: l.Err, Token: l.Token}, nil
//			}}
//		})
//	}
//
// [Run] runs each scenario as a subtest of its own, in virtual time, with an embedded server and
// three processes, each with a network of its own. The last scenario draws faults, as package sim
// does. [Find] returns what [Run] would report, for a lock that is known to be wrong. All of it
// takes a few seconds.
//
// # The rules for a lock
//
//   - One process holds it at a time, as far as the holders themselves know. Tokens, if there are
//     any, increase from holder to holder.
//   - A holder finds out that its session has expired, or that its node was deleted. A holder that
//     is cut off finds out before another process is granted the lock.
//   - Acquire returns soon after its ctx has ended, also while no server answers. It leaves nothing
//     that keeps others out.
//   - A connection that breaks, or a reply that is lost, at any step leaves nothing that keeps
//     others out, once Acquire or Release were called again after an error.
//   - A process whose session was lost can hold the lock again.
//   - Other nodes below the path are left alone, and keep no contender out.
//   - No ephemeral node, goroutine or panic is left.
//
// There are no rules for the order of grants, the cost of a call, or locks that several may hold.
package conform
