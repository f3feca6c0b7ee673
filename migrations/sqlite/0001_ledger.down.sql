DROP TABLE lastdoor_replaced;
DROP TABLE lastdoor_audit;
DROP VIEW lastdoor_bearer;
DROP TABLE lastdoor_presented;
DROP TABLE lastdoor_marks;
DROP TABLE lastdoor_retired_sources;
