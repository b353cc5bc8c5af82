package main

// Several locks at once, and locks that are asked for.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "lock all: the locks are taken in the order of the arguments",
			File: "lock/all.go",
			Old:  "cmp.Compare(paths[a], paths[b])",
			New:  "cmp.Compare(a, b)",
			Test: "TestLockAllHoldsAllAndGivesAllBack",
		},
		{
			Name: "lock all: a loss while another lock is waited for is an error",
			File: "lock/all.go",
			Old:  "if ctx.Err() != nil || lost == nil {",
			New:  "if err != nil {",
			Test: "TestLockAllBeginsAgainAfterALoss",
		},
		{
			Name: "lock all: a loss while another lock is waited for is not noticed",
			File: "lock/all.go",
			Old:  "		ctx = held\n",
			New:  "		_ = held\n",
			Test: "TestLockAllBeginsAgainAfterALoss",
		},
		{
			Name: "lock all: what it has stays locked when its context ends",
			File: "lock/all.go",
			Old:  "		held.Unlock(ctx)\n",
			New:  "",
			Test: "TestLockAllGivesBackWhatItHasWhenItsContextEnds",
		},
		{
			Name: "lock all: a loss hides the end of its context",
			File: "lock/all.go",
			Old:  "ended != nil && !errors.Is(err, ended)",
			New:  "ended != nil && err == nil",
			Test: "TestLockAllWhoseContextEndsAfterALossSaysSo",
		},
		{
			Name: "lock all: a context of the leases ends the wait for their nodes",
			File: "lock/all.go",
			Old:  "if ls.haveEnded(ctx) {",
			New:  "if ls.haveEnded(ctx) && false {",
			Test: "TestLeasesAreGivenBackUnderTheirOwnContext",
		},
		{
			Name: "lock all: leases that are still held are done",
			File: "lock/all.go",
			Old:  "if ls.Err() != nil {\n\t\tls.end()",
			New:  "if ls.Err() != nil || true {\n\t\tls.end()",
			Test: "TestLeasesAreHeldThoughUnlockHasNoContext/embedded",
		},
		{
			Name: "lock all: giving back hides a loss",
			File: "lock/all.go",
			Old:  "err != nil && !errors.Is(over, protocol.ErrLost)",
			New:  "err != nil",
			Test: "TestLockAllIsLostWithOneOfThem",
		},
		{
			Name: "revoke: any data ask for the lock",
			File: "lock/revoke.go",
			Old:  "case bytes.Equal(w.Data(), revocation):",
			New:  "case len(w.Data()) > 0 || bytes.Equal(nil, revocation):",
			Test: "TestRevokeAsksTheHolder",
		},
		{
			Name: "revoke: a lease that has ended is revoked",
			File: "lock/revoke.go",
			Old:  "		case l.Err() != nil:\n			return\n",
			New:  "",
			Test: "TestRevocationOfALeaseThatHasEndedIsNotHeardOf",
		},
		{
			Name: "revoke: a holder listens for as long as its back-off lasts",
			File: "lock/revoke.go",
			Old:  "Go(l.awaitRevocation)",
			New:  "Go(func(ctx context.Context) { ctx, _ = l.Context(ctx); l.awaitRevocation(ctx) })",
			Test: "TestRevocationIsHeardOfThoughABackOffHasEnded",
		},
		{
			Name:    "lock: a client that holds another lock is said to hold this one",
			File:    "protocol/recipe.go",
			Old:     "if g.recipe.path == r.path {",
			New:     "if g.recipe.path != \"\" {",
			Test:    "TestWaitForALockOfOnesOwnSaysSo",
			Package: "./lock",
		},
	}...)
}
