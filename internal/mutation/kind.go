package main

// Contenders of several recipes, and of other libraries, at one path.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name:    "kinds: contenders of other recipes are ignored",
			File:    "protocol/line/kind.go",
			Func:    "(*Line).name",
			Old:     "n.other = ok\n\treturn n, ok",
			New:     "n.other = ok\n\treturn n, false",
			Package: "./internal/suite",
			Test:    "TestContendersOfAllRecipesAtAPathRespectEachOther",
		},
		{
			Name:    "kinds: nodes that have no owner are taken for ours",
			File:    "protocol/line/kind.go",
			Old:     "owned && !ok {",
			New:     "(owned || true) && !ok {",
			Package: "./lock",
			Test:    "TestNodesOfOtherRecipesAreIgnored/embedded",
		},
		{
			Name: "kinds: any session makes a WriteLock",
			File: "protocol/line/kind.go",
			Old:  "if java != nil && ",
			New:  "if java != nil && c == java && ",
			Test: "TestNodesThatAreNoWriteLocksAreIgnored",
		},
		{
			Name: "kinds: a contender of another recipe that is broken is not found",
			File: "protocol/line/contenders.go",
			Func: "(*Line).change",
			Old:  "l.name(node)",
			New:  "ParseName(node, l.names...)",
			Test: "TestContendersOfOtherKindsAreShownAndBroken",
		},
		{
			Name: "kinds: a contender that another library overlooks is granted",
			File: "protocol/line/contender.go",
			Old:  "; ok && len(blockers) == 0 {",
			New:  "; ok && len(blockers) < 0 {",
			Test: "TestContenderThatAnotherLibraryOverlooksIsRefused",
		},
		{
			Name: "kinds: a reader is refused for a reader of another library",
			File: "protocol/line/kind.go",
			Old:  " && len(r.blockers([]Name{n, line[self]}, 1)) > 0 {",
			New:  " {",
			Test: "TestContenderThatAnotherLibraryOverlooksIsRefused",
		},
		{
			Name: "kinds: a contender is refused for a zk.Lock, which fails",
			File: "protocol/line/kind.go",
			Old:  " || isGoZooKeepers(n.Node)",
			New:  "",
			Test: "TestContenderThatAnotherLibraryOverlooksIsRefused",
		},
		{
			Name: "kinds: the end of a contender that overlooks ours is taken for proof",
			File: "protocol/line/contender.go",
			Old:  "b.respects(c.request.Kind) && ",
			New:  "",
			Test: "TestEndOfAContenderThatOverlooksOursIsNoProof",
		},
		{
			Name: "kinds: a writer that has become a reader is taken for gone",
			File: "protocol/line/contender.go",
			Old:  "c.line.allExclusive() && !b.Replaceable()",
			New:  "c.line.allExclusive()",
			Test: "TestMutexWaitsForAReaderThatHasReplacedAWriter",
		},
		{
			Name: "kinds: lines of several kinds share their listings",
			File: "protocol/line/listing.go",
			Old:  "strings.Join(l.names, ",
			New:  "strings.Join(l.names[:0], ",
			Test: "TestListingIsNotSharedBetweenKinds",
		},
		{
			Name:    "kinds: a recipe checks contenders of others",
			File:    "protocol/line/line.go",
			Old:     "r.Check(ownKinds(line))",
			New:     "r.Check(line)",
			Package: "./semaphore",
			Test:    "TestDisagreementIsReportedBehindAnotherRecipe",
		},
		{
			Name: "semaphore: contenders of other recipes are shown",
			File: "semaphore/semaphore.go",
			Old:  "return !ok",
			New:  "return !ok && c.Session == 0",
			Test: "TestDisagreementIsReportedBehindAnotherRecipe",
		},
		{
			Name: "rwlock: a mutex is shown as a reader",
			File: "rwlock/rwlock.go",
			Old:  "!isReader(c.Node)",
			New:  "exclusive(c.Node[26 : len(c.Node)-10])",
			Test: "TestMutexAtThePathIsShownAsExclusive",
		},
	}...)
}
