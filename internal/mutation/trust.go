package main

// How long a session may be relied on.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "trust: what is held is held for as long as the server says",
			File: "protocol/session.go",
			Old:  "case len(s.grants) > 0 && s.trust.over(now):",
			New:  "case len(s.grants) > 99 && s.trust.over(now):",
			Test: "TestErrIsComputedFromTheClocksWhenItIsCalled|TestErrAndDeadlineAgreeToTheNanosecond",
		},
		{
			Name: "trust: it runs from the answer, not from the request",
			File: "protocol/trust.go",
			Old:  "t.contact = later(t.contact, sent)",
			New:  "sent = at; t.contact = later(t.contact, sent)",
			Test: "TestTrustIsRenewedFromTheSendTimeOfWhatIsAnswered",
		},
		{
			Name: "trust: any answer of the server renews it",
			File: "protocol/trust.go",
			Old:  "if by != byServer {",
			New:  "if true {",
			Test: "TestTrustNeedsTheServerTheLeaderAndAQuorum|TestTrustNeverOutlives",
		},
		{
			Name: "trust: a contact counts before it can have been reported",
			File: "protocol/trust.go",
			Old:  "horizon := sent.Add(-share(t.timeout, reportShare))",
			New:  "horizon := sent",
			Test: "TestTrustCountsNoContactThatMayNotHaveBeenReported|TestTrustNeverOutlives",
		},
		{
			Name: "trust: a leader needs no quorum",
			File: "protocol/trust.go",
			Old:  "earlier(t.carried, t.agreed).Add",
			New:  "t.carried.Add",
			Test: "TestTrustNeedsTheServerTheLeaderAndAQuorum|TestResumptionIsConfirmed",
		},
		{
			Name: "trust: only the monotonic clock is asked",
			File: "protocol/trust.go",
			Old:  "return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))",
			New:  "return now.Sub(since)",
			Test: "TestElapsedIsTheLongerOfTwoClocks|TestTrustRunsOutWhileTheMachineSleeps",
		},
		{
			Name: "trust: the leader is not asked",
			File: "protocol/session.go",
			Old:  "if w != nil && engaged && !now.Before(due) {",
			New:  "if w != nil && engaged && due.IsZero() {",
			Test: "TestBlipShorterThanTheWindowLosesNothing|TestSessionThatHoldsNothingSendsNoProofs",
		},
		{
			Name: "trust: a server that does not answer is kept",
			File: "protocol/session.go",
			Old:  `w.cut(fmt.Errorf("no answer from the leader`,
			New:  `_ = (fmt.Errorf("no answer from the leader`,
			Test: "TestSilentServerIsLeftForAnother",
		},
		{
			Name: "trust: asking never ends",
			File: "protocol/session.go",
			Old:  "	delete(s.grants, g)\n	s.engaged--",
			New:  "	delete(s.grants, g)",
			Test: "TestSessionThatHoldsNothingSendsNoProofs",
		},
		{
			Name: "trust: an untrusted session grants",
			File: "protocol/session.go",
			Old:  "	case s.trust.over(time.Now()):\n		return errStale",
			New:  "	case false:\n		return errStale",
			Test: "TestUntrustedSessionGrantsNothing",
		},
	}...)
}
