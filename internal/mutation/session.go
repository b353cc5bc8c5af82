package main

// Sessions: what they claim, how they connect and how they end.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name:    "views: parents have the ACL of the client that has dialled",
			File:    "protocol/path.go",
			Old:     "acl := s.client.acl(s.relative(path))",
			New:     "acl := s.base.client.acl(s.relative(path))",
			Package: "./internal/suite",
			Test:    "TestEveryNodeHasTheACLOfItsView/lock/embedded",
		},
		{
			Name: "session: an expired one is gone on with",
			File: "protocol/session.go",
			Old:  "case h.SessionID != s.id || h.SessionID == 0:",
			New:  "case false:",
			Test: "TestServerThatGivesOutAnotherSessionEndsTheOldOne",
		},
		{
			Name: "session: a lost one is left to the servers",
			File: "protocol/session.go",
			Old:  "if gone || !opened {",
			New:  "if true || gone || !opened {",
			Test: "TestNodesOfALostSessionAreDeletedThoughTheServerStillKnowsIt",
		},
		{
			Name: "session: a failed dial closes the gate for good",
			File: "protocol/session.go",
			Old:  "current := w != nil && s.wire == w",
			New:  "current := s.wire == w",
			Test: "TestCallsMadeWhileSuspendedGoOnAfterTheReconnect",
		},
		{
			Name: "session: the gate is closed twice",
			File: "protocol/session.go",
			Old:  "if !s.ready {\n\t\ts.ready = true",
			New:  "if true {\n\t\ts.ready = true",
			Test: "TestReconnectOvertakesTheCutOfTheOldConnection",
		},
		{
			Name: "session: calls do not wait for a connection",
			File: "protocol/retry.go",
			Old:  "if err := s.await(ctx); err != nil {",
			New:  "if err := s.Err(); err != nil {",
			Test: "TestCallsCancelledWhileSuspendedNeverAct",
		},
		{
			Name: "session: a handshake has the time that zk.Conn gives it",
			File: "protocol/connection.go",
			Old:  "	if !w.established {\n		return nil\n	}\n	return set(t)",
			New:  "	return set(t)",
			Test: "TestConnectTriesEveryServer|TestCallsKeepTheirDeadlineAtASilentServer|TestConnectSucceeds|TestSilentServerIsLeft",
		},
		{
			Name: "session: a write that fails is reported to zk.Conn",
			File: "protocol/connection.go",
			Func: "(*connection).Write",
			Old:  "w.write(p, nil)",
			New:  "if w.write(p, nil); w.closed { return 0, net.ErrClosed }",
			Test: "TestCredentialsAreSentAgainOverAConnectionThatFailsToWrite",
		},
		{
			Name: "session: a timeout of nothing is granted",
			File: "protocol/connection.go",
			Old:  "if granted.SessionID != 0 && granted.Timeout <= 0 {",
			New:  "if false {",
			Test: "TestClientSurvivesMalformedHandshakes",
		},
		{
			Name: "close: a user's dialer is waited for",
			File: "protocol/dial.go",
			Old:  "	case <-ctx.Done():\n		return nil, context.Cause(ctx)\n	}",
			New:  "	}",
			Test: "TestCloseDoesNotWaitForADialerThatDoesNotReturn",
		},
		{
			Name: "close: it leaves an orphaned session to the servers",
			File: "protocol/client.go",
			Old:  "defer context.AfterFunc(ctx, c.stop)()",
			New:  "c.stop()",
			Test: "TestCloseClosesAnOrphanedSession",
		},
		{
			Name: "views: requests use the options of the client that has dialled",
			File: "protocol/client.go",
			Old:  "c.bound = &Session{s, c}",
			New:  "c.bound = s.base",
			Test: "TestRetriesUseTheOptionsOfTheView|TestParentsHaveTheACLOfTheView",
		},
		{
			Name: "session: a handshake claims only what watches were told of",
			File: "protocol/session.go",
			Old:  "return s.newest, s.err",
			New:  "return s.settled, s.err",
			Test: "TestSessionIsNotResumedWhereItWouldGoBackInTime",
		},
		{
			Name: "session: a handshake claims to have seen nothing",
			File: "protocol/connection.go",
			Old:  "zkwire.SetLastZxid(p, w.lastZxid)",
			New:  "zkwire.SetLastZxid(p, 0)",
			Test: "TestNoHandshakeClaimsLessThanWasDelivered",
		},
		{
			Name: "session: answers count for a handshake once watches are set again",
			File: "protocol/session.go",
			Func: "(*session).seen",
			Old:  "	s.newest = max(s.newest, zxid)\n	if settles {",
			New:  "	if settles {\n		s.newest = max(s.newest, zxid)",
			Test: "TestSessionIsNotResumedWhereItWouldGoBackInTime",
		},
		{
			Name: "session: answers before watches are set again count",
			File: "protocol/connection.go",
			Old: `	w.session.seen(head.Zxid, w.rewatching == 0)
	w.session.answered`,
			New: `	w.session.seen(head.Zxid, true)
	w.session.answered`,
			Test: "TestWatchesSurviveTwoCuts",
		},
		{
			Name: "session: the first of several packets of watches counts for all",
			File: "protocol/connection.go",
			Old:  "w.rewatching--",
			New:  "w.rewatching = 0",
			Test: "TestWatchesSurviveTwoCutsThoughTheyAreMany",
		},
		{
			Name: "session: watches of users are not counted",
			File: "protocol/rewatch.go",
			Old: `	s.watched[path] |= kind
`,
			New: `	if s.watches.watches[path] != nil {
		s.watched[path] |= kind
	}
`,
			Test: "TestWatchesSurviveTwoCuts",
		},
		{
			Name: "session: watches that have fired are set again",
			File: "protocol/rewatch.go",
			Old:  "if ended := firedBy(e.Type); ended != 0 {",
			New:  "if ended := firedBy(e.Type); ended > 100 {",
			Test: "TestWatchThatHasFiredIsNotSetAgain",
		},
		{
			Name: "session: packets of watches are as long as zk.Conn's",
			File: "protocol/rewatch.go",
			Old:  "const rewatchSize = 32 << 10",
			New:  "const rewatchSize = 128 << 10",
			Test: "TestManyWatchesAreSetAgainWhereRequestsMustBeSmall",
		},
		{
			Name: "session: requests that renew trust wait for all watches",
			File: "protocol/rewatch.go",
			Old:  "const rewatchWindow = 4",
			New:  "const rewatchWindow = 1 << 20",
			Test: "TestLeasesAreKeptWhereItTakesLongToWatchThemAgain",
		},
		{
			Name: "session: two requests of zk.Conn to set watches share an answer",
			File: "protocol/connection.go",
			Old:  "n == 0 || !ownRewatch(w.rewatch[n-1])",
			New:  "n == 0",
			Test: "TestEveryRequestToSetWatchesIsAnswered",
		},
		{
			Name: "session: only the first packets of watches are sent",
			File: "protocol/connection.go",
			Old:  "w.session.client.spawn(w.sendRewatch)",
			New:  "",
			Test: "TestLeasesAreKeptWhereItTakesLongToWatchThemAgain",
		},
		{
			Name: "session: watches that are refused are not missed",
			File: "protocol/connection.go",
			Old:  "case r.op == zkwire.OpSetWatches && head.Code != zkwire.CodeOK:",
			New:  "case r.op == zkwire.OpSetWatches && head.Code > 0:",
			Test: "TestConnectionOverWhichWatchesAreNotSetAgainIsCut",
		},
		{
			Name: "session: a missing node is not looked for again",
			File: "protocol/grant.go",
			Func: "(*Grant).missing",
			Old:  "!errors.Is(err, zk.ErrNoNode) {",
			New:  "err != nil && !errors.Is(err, zk.ErrNoNode) {",
			Test: "TestNodeThatSeemsToBeMissingIsLookedForAgain",
		},
		{
			Name: "session: a node that is believed missing stays",
			File: "protocol/grant.go",
			Old:  "\tg.client().spawn(func() { g.session.remove(g.session.life, g.node) })\n",
			New:  "",
			Test: "TestNodeThatIsBelievedMissingIsDeleted",
		},
		{
			Name: "session: proclaiming believes the first answer",
			File: "protocol/setdata.go",
			Old:  "for errors.Is(err, zk.ErrNoNode) {",
			New:  "for false {",
			Test: "TestNodeThatSeemsToBeMissingIsLookedForAgain",
		},
		{
			Name: "orphan: it is closed without credentials",
			File: "protocol/orphan.go",
			Old:  "for _, a := range c.auth {",
			New:  "for _, a := range c.auth[:0] {",
			Test: "TestLostSessionIsClosedWhereCredentialsAreDemanded",
		},
		{
			Name: "orphan: attempts to close it are repeated at once",
			File: "protocol/orphan.go",
			Func: "(*Client).closeOrphan",
			Old:  "if prolonged && c.closing.Err() == nil {",
			New:  "if false && prolonged {",
			Test: "TestAttemptsToCloseALostSessionDoNotKeepItAlive",
		},
		{
			Name: "orphan: Close leaves a session that is let alone to the servers",
			File: "protocol/orphan.go",
			Old:  "timeout+timeout/2, c.closing.Done()",
			New:  "timeout+timeout/2, nil",
			Test: "TestCloseClosesAnOrphanedSessionDuringItsPause",
		},
		{
			Name: "session: one address of a name is tried",
			File: "protocol/dial.go",
			Old: `	for i, host := range hosts {
`,
			New: `	for i, host := range hosts[:1] {
		hosts = hosts[:1]
`,
			Test: "TestEveryAddressOfAServerIsTried|TestRouteHasEveryAddress",
		},
		{
			Name: "session: a dialer gets addresses instead of names",
			File: "protocol/options.go",
			Old: `		c.lookup = nil
`,
			New:  "",
			Test: "TestRouteHasEveryAddress",
		},
		{
			Name: "session: one answer ends the pacing of attempts",
			File: "protocol/session.go",
			Old:  "if by != byServer || now.Sub(w.dialled) >= share(s.trust.timeout, silenceShare) {",
			New:  "if true {",
			Test: "TestConnectionsThatEndAtOnceArePaced|TestAttemptsToConnectCount",
		},
		{
			Name: "session: attempts are paced for ever",
			File: "protocol/session.go",
			Old: `		s.failures, s.lastFail = 0, nil
	}
}`,
			New: `	}
}`,
			Test: "TestAttemptsToConnectCount",
		},
		{
			Name: "session: a refused credential is not told of",
			File: "protocol/connection.go",
			Old: `		why = w.authErr
`,
			New:  "",
			Test: "TestConnectionsThatEndAtOnceArePaced",
		},
		{
			Name: "session: the time for an answer does not double",
			File: "protocol/session.go",
			Old:  "slow = min(2*max(usual, slow), timeout)",
			New:  "slow = 0",
			Test: "TestSlowQuorumLosesNothing",
		},
		{
			Name: "session: slow answers are forgotten",
			File: "protocol/session.go",
			Old: `				slow = 2 * took
`,
			New: `				slow = 0
`,
			Test: "TestSlowQuorumLosesNothing",
		},
		{
			Name: "session: one proof at a time",
			File: "protocol/session.go",
			Old:  "if w != nil && engaged && !now.Before(due) {",
			New:  "if w != nil && engaged && len(pending) == 0 && !now.Before(due) {",
			Test: "TestSlowLinkLosesNothing",
		},
		{
			Name: "session: no last resumption",
			File: "protocol/session.go",
			Old: `				w.cut(errors.New("trust is about to run out"))
`,
			New: `				_ = last
`,
			Test: "TestSlowQuorumLosesNothing|TestLongRequests",
		},
		{
			Name: "session: pieces are no sign of life",
			File: "protocol/connection.go",
			Old: `	w.lastProgress = time.Now()
`,
			New:  "",
			Test: "TestLongRequestsAndReplies",
		},
		{
			Name: "session: trust that is overdue is renewed by a late answer",
			File: "protocol/session.go",
			Old: `	if s.overdue(now) == nil {
		s.trust.answered`,
			New: `	if true {
		s.trust.answered`,
			Test: "TestAnswerThatComesTooLateRenewsNothing",
		},
		{
			Name: "session: a session that is overdue is resumed",
			File: "protocol/session.go",
			Old:  "	case overdue != nil: // what",
			New:  "	case overdue != nil && s.id == 0: // what",
			Test: "TestHandshakeThatIsAnsweredTooLateResumesNothing",
		},
		{
			Name: "session: trust runs from the answer to a handshake",
			File: "protocol/session.go",
			Old:  "s.trust.began(w.dialled)",
			New:  "s.trust.began(time.Now())",
			Test: "TestTrustRunsFromTheDialNotFromTheAnswer",
		},
		{
			Name: "session: an answer to a credential is a sign of life",
			File: "protocol/session.go",
			Old:  "	if r.op == zkwire.OpAuth { // which",
			New:  "	if r.op == zkwire.OpAuth && code > 0 { // which",
			Test: "TestAnswerToACredentialIsNoSignOfLife",
		},
		{
			Name: "session: a credential refused once ends the client",
			File: "protocol/client.go",
			Old:  "if !connected {",
			New:  "if !connected || true {",
			Test: "TestCredentialRefusedLaterIsTriedAgain",
		},
		{
			Name: "session: a blocked observer keeps every event",
			File: "protocol/observe.go",
			Old:  "if len(d.queue) >= maxCalls {",
			New:  "if len(d.queue) < 0 {",
			Test: "TestBlockedObserver",
		},
		{
			Name: "session: a loss is folded away",
			File: "protocol/observe.go",
			Old: `		if d.queue[i].state == Lost {
			return
		}
`,
			New:  "",
			Test: "TestBlockedObserver",
		},
		{
			Name: "session: a missing node is looked for without a sync",
			File: "protocol/grant.go",
			Old:  "if err := g.session.sync(ctx, g.node); err != nil {\n\t\treturn false, err\n\t}",
			New:  "",
			Test: "TestNodeIsLookedForBehindASync",
		},
		{
			Name: "connection: the client's lock is waited for with the session's held",
			File: "protocol/session.go",
			Old:  "\ts.mu.Unlock()\n\tif due {",
			New:  "\tdefer s.mu.Unlock()\n\tif due {",
			Test: "TestRefusalIsLoggedWithoutTheSessionsLock",
		},
		{
			Name: "connection: numbers of own requests run into those of others",
			File: "protocol/connection.go",
			Old:  "w.ownXids = (w.ownXids + 1) % (1 << 30)",
			New:  "w.ownXids++",
			Test: "TestOwnRequestsReuseTheirNumbers",
		},
		{
			Name: "connection: a server that answers and hangs up is dialled at once",
			File: "protocol/dial.go",
			Old:  "time.Until(accepted.Add(share(granted, redialShare)))",
			New:  "time.Until(accepted)",
			Test: "TestConnectionsThatEndAtOnceArePaced",
		},
		{
			Name: "connection: addresses are forgotten when names cannot be resolved",
			File: "protocol/dial.go",
			Old:  "	r.known[server] = hosts\n",
			New:  "",
			Test: "TestRouteHasEveryAddressOfEveryName",
		},
		{
			Name: "connection: a refused credential is sent again at once",
			File: "protocol/client.go",
			Old:  "			case <-time.After(c.timeout):\n			case <-c.closing.Done():\n			}\n			continue",
			New:  "			default:\n			}\n			continue",
			Test: "TestCredentialRefusedLaterIsTriedAgain",
		},
		{
			Name: "connection: the timeout of a resumption is ignored",
			File: "protocol/session.go",
			Old:  "	s.password = secretOf(h.Password)\n	s.trust.timeout = h.Timeout\n",
			New:  "	s.password = secretOf(h.Password)\n",
			Test: "TestTrustFollowsTheTimeoutOfAResumption",
		},
		{
			Name: "session: requests go on before what is held is confirmed",
			File: "protocol/session.go",
			Old:  "if len(s.grants) == 0 || elapsed(s.trust.agreed",
			New:  "if true || elapsed(s.trust.agreed",
			Test: "TestWhatIsHeldIsConfirmedBeforeOtherRequests",
		},
		{
			Name: "shared: views share a value",
			File: "protocol/shared.go",
			Old:  "sharedKey[T]{s.client, key}",
			New:  "sharedKey[T]{s.session.client, key}",
			Test: "TestSharedValueBelongsToKeySessionAndView",
		},
		{
			Name: "shared: entries of values that are gone stay",
			File: "protocol/shared.go",
			Old:  "runtime.AddCleanup(v,",
			New:  "func(*T, func(sharedEntry[T]), sharedEntry[T]) { runtime.GC() }(v,",
			Test: "TestSharedValueIsCollectedAfterItsLastUse",
		},
		{
			Name: "shared: a late clean-up removes the next value",
			File: "protocol/shared.go",
			Old:  "if e.session.shared[e.key] == any(e.value) {",
			New:  "if true {",
			Test: "TestLateCleanUpLeavesTheNextValueAlone",
		},
		{
			Name: "shared: concurrent callers are not kept apart",
			File: "protocol/shared.go",
			Func: "Shared",
			Old:  "s.sharing.Lock()\n\tdefer s.sharing.Unlock()\n",
			New:  "",
			Test: "TestConcurrentCallersShareOneValue",
		},
		{
			Name: "observer: it is not told of how many entries",
			File: "protocol/recipe.go",
			Old:  "Count: count",
			New:  "Count: min(count, 1)",
			Test: "TestObserverIsToldOfEntries",
		},
	}...)
}
