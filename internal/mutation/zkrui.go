package main

// The page of zkr ui, and the survey that feeds it.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "zkr ui: a name that was bound anew reads the page",
			File: "cmd/zkr/internal/ui/access.go",
			Old:  "if !a.isHost(r.Host) {",
			New:  "if false {",
			Test: "TestPageIsGuarded",
		},
		{
			Name: "zkr ui: a page of another origin reads the events",
			File: "cmd/zkr/internal/ui/access.go",
			Old:  "err != nil || u.Host != r.Host",
			New:  "err != nil || u == nil",
			Test: "TestPageIsGuarded",
		},
		{
			Name: "zkr ui: no token is needed",
			File: "cmd/zkr/internal/ui/access.go",
			Old:  `if a.Token != "" && !a.known(r) {`,
			New:  "if false {",
			Test: "TestTokenIsNeeded",
		},
		{
			Name: "zkr ui: the cookie is the token",
			File: "cmd/zkr/internal/ui/access.go",
			Old:  `return a.derive("cookie of zkr ui")`,
			New:  "return a.Token",
			Test: "TestTokenIsNeeded",
		},
		{
			Name: "zkr ui: a deed needs no key",
			File: "cmd/zkr/internal/ui/handler.go",
			Old:  `if !equal(r.Header.Get("Zkr-Key"), h.key) {`,
			New:  "if false {",
			Test: "TestDeedsOfOtherSitesAreRefused",
		},
		{
			Name: "zkr ui: other machines need no token",
			File: "cmd/zkr/ui.go",
			Old:  `case sh.access.Token == "" && !ui.IsLocal(sh.listen):`,
			New:  "case false:",
			Test: "TestUIRefusesBadInput",
		},
		{
			Name: "zkr ui: the next member of a name is broken",
			File: "cmd/zkr/ui.go",
			Old:  "c == nil || !c.Since.Equal(d.Since)",
			New:  "c == nil",
			Test: "TestPageSparesTheNextMemberOfAName",
		},
		{
			Name: "zkr ui: data reach the page as they are",
			File: "cmd/zkr/internal/ui/row.go",
			Old:  "Program: plain.Line(c.Owner.Program)",
			New:  "Program: c.Owner.Program",
			Test: "TestNoCharacterThatIsNotPrintableIsSent",
		},
		{
			Name: "zkr ui: looks come one after the other, whatever they cost",
			File: "cmd/zkr/internal/ui/hub.go",
			Old:  "rest(ctx, cost-time.Since(began), nil)",
			New:  "_ = cost",
			Test: "TestTreeThatChangesWithoutPauseStaysBelowTheRate",
		},
		{
			Name: "zkr ui: a browser that comes back is told all",
			File: "cmd/zkr/internal/ui/events.go",
			Old:  "boot != h.boot || err != nil",
			New:  "boot != h.boot || err != nil || true",
			Test: "TestBrowserIsToldWhatHasChanged",
		},
		{
			Name: "zkr ui: a server that is silent counts as there",
			File: "cmd/zkr/internal/ui/hub.go",
			Old:  "h.answered(err == nil)",
			New:  "h.answered(err == nil || true)",
			Test: "TestSilentServerIsShown",
		},
		{
			Name: "zkr ui: each look reads all of the tree",
			File: "cmd/zkr/internal/survey/memory.go",
			Old:  "same && !known.stale()",
			New:  "same && !known.stale() && false",
			Test: "TestViewerReadsOnlyWhatHasChanged",
		},
		{
			Name: "zkr ui: a holder that never waited counts as lost",
			File: "cmd/zkr/internal/survey/memory.go",
			Old:  "case !s.waited || !s.expects.IsZero():",
			New:  "case !s.expects.IsZero():",
			Test: "TestViewerTellsReleasesFromLosses",
		},
	}...)
}
