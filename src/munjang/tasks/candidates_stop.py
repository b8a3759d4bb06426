"""Words that say nothing about a text's subject: where a phrase must not begin or end, and what no topic is named by.

Two short lists of our own. The Korean one holds nouns that an analyser lets through although they stand for no subject
(bound nouns, pronouns, counters, 'thing', 'case'); particles and endings never get that far.
"""

from __future__ import annotations

_ENGLISH = """
a about above across after again against ago all almost alone along already also although always am among an and
another any anybody anyone anything anyway are around as aside at away back be became because become been before
behind being below beside besides between beyond both but by came can can't cannot come could couldn't did didn't
do does doesn't doing don't done down during each either else enough especially even ever every everybody everyone
everything except far few first for from further gave get gets getting give given go goes going gone got had hadn't
has hasn't have haven't having he he's hence her here here's hers herself him himself his how however i i'd i'll
i'm i've if in indeed instead into is isn't it it'd it'll it's its itself just keep kept knew know last later least
less let let's like likely made make makes making many may maybe me might mine more most mostly much must my myself
near nearly need neither never next no nobody none nor not nothing now of off often oh ok on once one one's ones
only onto or other others otherwise our ours ourselves out over own perhaps please put quite rather really s said
same saw say says see seem seemed seems seen several shall she she's should shouldn't since so some somebody
someone something sometimes soon still such t take taken tell than that that'll that's the their theirs them
themselves then there there's therefore these they they'd they'll they're they've thing things this those though
through throughout thus till to together too took toward towards under unless unlike until up upon us use used
uses using very via want wants was wasn't way we we'd we'll we're we've well went were weren't what what's
whatever when whenever where wherever whether which while who who's whoever whole whom whose why will with within
without won't would wouldn't yes yet you you'd you'll you're you've your yours yourself yourselves
"""

_KOREAN = """
것 거 수 때 등 및 데 바 점 줄 뿐 만큼 대로 채 척 듯 지 겸 중 간 내 외 전 후 뒤 앞 위 아래 옆 안 밖 속 곳 쪽 편
나 너 저 우리 저희 너희 그 그녀 그것 이것 저것 여기 거기 저기 이곳 그곳 누구 무엇 뭐 언제 어디 자기 자신 모두
분 명 개 번 번째 가지 정도 경우 때문 다음 이번 지난번 오늘 어제 내일 지금 이제 요즘 최근 당시 동안 사이 이상
이하 이후 이전 하나 둘 셋 넷 다섯 여섯 일곱 여덟 아홉 열 더 또 덕분 탓 나름 따름 터 적 통 김 셈 식 측 양
년 월 일 시 초 주 원 달 해 하루 이틀 사흘 며칠 이날 그날 그때 이때 처음 마지막 나머지 대부분 일부 전체 관련
대해 위해 통해 따라 대한 위한 통한 의해
"""

ENGLISH = frozenset(_ENGLISH.split())
KOREAN = frozenset(_KOREAN.split())
